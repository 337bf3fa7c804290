// Whether ranks were started alike.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace temper::dist {

// What a rank says of itself, by name ("version", "config"), with its host's name, as text.
std::string say(const std::vector<std::pair<std::string, std::string>>& what);
// first: what rank 0 says; other: what this rank does, which may be less. Throws RunError that
// names the first difference and both hosts.
void check_same(const std::string& first, int rank, const std::string& other);

}  // namespace temper::dist
