#pragma once
// The fields of a struct, listed once for what reads, writes, compares or binds it: `fields_of`,
// beside the struct's namespace, returns them as a tuple.
#include <tuple>

namespace tuccl {

template <class Owner, class Value, bool kRequiredField>
struct Field {
  static constexpr bool kRequired = kRequiredField;
  using Type = Value;
  const char* name;
  Value Owner::* member;
  int least = 0;  ///< Of a number in a file.
  const char* doc = "";
};

template <class Owner, class Value>
constexpr Field<Owner, Value, true> required(const char* name, Value Owner::* member,
                                             int least = 0) {
  return {name, member, least};
}
template <class Owner, class Value>
constexpr Field<Owner, Value, true> required(const char* name, Value Owner::* member,
                                             const char* doc) {
  return {name, member, 0, doc};
}
template <class Owner, class Value>
constexpr Field<Owner, Value, false> optional(const char* name, Value Owner::* member,
                                              const char* doc = "") {
  return {name, member, 0, doc};
}

/// Calls `visit` with each field of a part, in the order of the list.
template <class Part, class Visit>
constexpr void each_field(const Part& part, Visit visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, fields_of(part));
}

}  // namespace tuccl
