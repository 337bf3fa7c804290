// Whether ranks were started alike.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace temper::dist {

// This rank's properties by name ("version", "config") and its host's name, as text.
std::string say(const std::vector<std::pair<std::string, std::string>>& what);
// first: the text of rank 0; other: this rank's text, which may have fewer properties. Throws
// RunError that names the first difference and both hosts.
void check_same(const std::string& first, int rank, const std::string& other);

}  // namespace temper::dist
