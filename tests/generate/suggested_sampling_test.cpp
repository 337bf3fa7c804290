// What generation_config.json suggests.
#include "temper/generate/sampling/suggested_sampling.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::generate;

TEST_CASE("what a model's makers suggest is taken where nobody said otherwise") {
  const auto dir = std::filesystem::temp_directory_path() / "temper_suggested_sampling";
  std::filesystem::create_directories(dir);
  const auto write = [&](const char* text) {
    std::ofstream(dir / "generation_config.json") << text;
  };
  SamplingOptions options;
  std::filesystem::remove(dir / "generation_config.json");
  CHECK(take_suggested(dir.string(), options).empty());
  write(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null,
            "repetition_penalty": 1.05, "eos_token_id": [1, 2]})");
  CHECK(take_suggested(dir.string(), options) ==
        "temperature 0.6, top_k 20, top_p 0.95, repetition_penalty 1.05");
  CHECK(options.temperature == 0.6);
  CHECK(options.top_k == 20);
  CHECK(options.top_p == 0.95);
  CHECK(options.min_p == 0);
  CHECK(options.repetition_penalty == 1.05);
  options = {.temperature = 0, .top_k = 3};
  CHECK(take_suggested(dir.string(), options, [](const SamplingOption& o) {
          return o.name == std::string("top_p");
        }) == "top_p 0.95");
  CHECK(options.temperature == 0);
  CHECK(options.top_k == 3);
  // Greedy, whatever the keys of sampling say.
  write(R"({"do_sample": false, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.5})");
  options = {};
  CHECK(take_suggested(dir.string(), options) == "temperature 0, repetition_penalty 1.5");
  CHECK(options.temperature == 0);
  CHECK(options.top_p == 1);
  options = {.temperature = 0.7};
  CHECK(take_suggested(dir.string(), options, [](const SamplingOption& o) {
          return o.name != std::string("temperature");
        }) == "repetition_penalty 1.5");
  CHECK(options.temperature == 0.7);
  for (const char* wrong :
       {R"({"do_sample": "no"})", R"({"temperature": "hot"})", R"({"temperature": -1})",
        R"({"top_p": 0})", R"({"top_p": 1.5})", R"({"top_k": []})", R"({"top_k": 2.5})",
        R"({"top_k": -2})", R"({"repetition_penalty": 0})"}) {
    write(wrong);
    try {
      take_suggested(dir.string(), options);
      FAIL_CHECK(wrong);
    } catch (const DataError& e) {
      CHECK(std::string(e.what()).find("generation_config.json: ") != std::string::npos);
    }
  }
  std::filesystem::remove_all(dir);
}
