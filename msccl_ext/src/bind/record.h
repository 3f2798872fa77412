#pragma once
// Python's view of a struct by the list of its fields (support/fields.h).
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "support/fields.h"
#include "tuccl/network.h"
#include "tuccl/program.h"

namespace nanobind::detail {

/// Enums cross as their words.
template <tuccl::Word T>
struct word_caster {
  NB_TYPE_CASTER(T, const_name("str"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(source.ptr(), &size);
    if (!text) PyErr_Clear();
    const auto found = tuccl::find_word<T>({text ? text : "", static_cast<std::size_t>(size)});
    if (found) value = *found;
    return found.has_value();
  }
  static handle from_cpp(T value, rv_policy, cleanup_list*) noexcept {
    const std::string_view text = tuccl::to_string(value);
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  }
};
template <>
struct type_caster<tuccl::Buffer> : word_caster<tuccl::Buffer> {};
template <>
struct type_caster<tuccl::Op> : word_caster<tuccl::Op> {};
template <>
struct type_caster<tuccl::Protocol> : word_caster<tuccl::Protocol> {};
template <>
struct type_caster<tuccl::Collective> : word_caster<tuccl::Collective> {};
template <>
struct type_caster<tuccl::Transport> : word_caster<tuccl::Transport> {};

}  // namespace nanobind::detail

namespace tuccl {

/// What an argument for a field is taken as: a word as text, to be refused by name.
template <class Value>
struct Taken {
  using Type = Value;
  static Value value(Type&& given) { return std::move(given); }
};
template <Word Enum>
struct Taken<Enum> {
  using Type = std::string_view;
  static Enum value(Type text) { return from_word<Enum>(text); }
};

template <class Part, class Field>
auto argument(const Field& field) {
  if constexpr (Field::kRequired)
    return nanobind::arg(field.name);
  else if constexpr (Word<typename Field::Type>)
    return nanobind::arg(field.name) = to_string(Part{}.*field.member);
  else
    return nanobind::arg(field.name) = Part{}.*field.member;
}

template <class Part>
Part replaced(const Part& part, const nanobind::kwargs& changes) {
  Part out = part;
  for (const auto [key, value] : changes) {
    const auto name = nanobind::cast<std::string>(key);
    bool found = false;
    each_field(part, [&](const auto& field) {
      if (name != field.name) return;
      found = true;
      out.*field.member = nanobind::cast<typename std::decay_t<decltype(field)>::Type>(value);
    });
    if (!found) throw nanobind::type_error(("no field '" + name + "'").c_str());
  }
  return out;
}

/// What a part that Python made must be; overloaded where that is something.
template <class Part>
void check_made(const Part&) {}

template <class Part, class... Field>
void bind_members(nanobind::class_<Part>& c, const std::tuple<Field...>& fields) {
  std::apply([&](const auto&... field) { (c.def_ro(field.name, field.member, field.doc), ...); },
             fields);
}

/// The constructor and the fields; those that need not be given by name alone, if `named`.
template <bool named, class Part, class... Field>
void bind_fields(nanobind::class_<Part>& c, const std::tuple<Field...>& fields) {
  const auto init = [fields](Part* self, typename Taken<typename Field::Type>::Type... values) {
    Part part;
    std::apply(
        [&](const auto&... field) {
          ((part.*field.member = Taken<typename Field::Type>::value(std::move(values))), ...);
        },
        fields);
    check_made(part);
    new (self) Part(std::move(part));
  };
  std::apply(
      [&](const auto& first, const auto&... rest) {
        if constexpr (!named)
          c.def("__init__", init, argument<Part>(first), argument<Part>(rest)...);
        else if constexpr (std::decay_t<decltype(first)>::kRequired)
          c.def("__init__", init, argument<Part>(first), nanobind::kw_only(),
                argument<Part>(rest)...);
        else
          c.def("__init__", init, nanobind::kw_only(), argument<Part>(first),
                argument<Part>(rest)...);
      },
      fields);
  bind_members(c, fields);
}

template <class Part>
void bind_replace(nanobind::class_<Part>& c) {
  c.def("replace", &replaced<Part>, "The same with the given fields changed.");
}

}  // namespace tuccl
