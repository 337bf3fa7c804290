#include "temper/base/glob.h"

#include <doctest/doctest.h>

#include <string>

using namespace temper;

TEST_CASE("patterns match whole names") {
  CHECK(matches_glob("*", ""));
  CHECK(matches_glob("*.embed_tokens.*", "model.embed_tokens.weight"));
  CHECK_FALSE(matches_glob("embed_tokens", "model.embed_tokens.weight"));
  CHECK(matches_glob("*layers.?.*bias", "model.layers.1.proj.bias"));
  CHECK_FALSE(matches_glob("*layers.?.*bias", "model.layers.10.proj.bias"));
  CHECK_FALSE(matches_glob("*a*a*a*a*a*a*a*a*b", std::string(2000, 'a')));
  CHECK(matches_glob("a*b*c", "a-b-c-b-c"));
  CHECK_FALSE(matches_glob("a*b", "a-b-"));
}

TEST_CASE("a pattern of many stars takes time of pattern times name") {
  // A matcher that tries every place of every star would need more steps than a century has.
  std::string pattern;
  for (int i = 0; i < 40; ++i) pattern += "*a";
  CHECK(matches_glob(pattern, std::string(3000, 'a')));
  CHECK_FALSE(matches_glob(pattern + "*b", std::string(3000, 'a')));
}
