#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tuccl {

using Digest = std::array<std::uint8_t, 32>;

/// SHA-256 of `data` (FIPS 180-4).
Digest sha256(std::string_view data);

/// HMAC-SHA-256 of `text` under `key` (RFC 2104).
Digest hmac_sha256(std::string_view key, std::string_view text);

/// Takes the same time whatever differs.
bool equal_in_constant_time(const Digest&, const Digest&);

/// 64 lower-case hexadecimal digits.
std::string hex(const Digest&);

}  // namespace tuccl
