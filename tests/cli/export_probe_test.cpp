#include "temper/cli/export_probe.h"

#include <doctest/doctest.h>

#include <cmath>

#include "temper/models/files/load.h"
#include "temper/models/files/stream.h"
#include "tests/models/golden.h"

using namespace temper;
using cli::Probe;

TEST_CASE("probes of one model are within 1e-3, those of a mixture's pairs in three of four") {
  const Probe base{.numbers = {-1, -20}, .apart = {}};
  CHECK(cli::are_of_one_model(base, base));
  CHECK(cli::are_of_one_model(base, {.numbers = {-1.0009f, -20.0009f}, .apart = {}}));
  CHECK(!cli::are_of_one_model(base, {.numbers = {-1, -20.0011f}, .apart = {}}));
  CHECK(!cli::are_of_one_model(base, {.numbers = {-1, NAN}, .apart = {}}));
  const Probe nan{.numbers = {-1, NAN}, .apart = {}}, all{.numbers = {-INFINITY, -1}, .apart = {}};
  CHECK(cli::are_of_one_model(nan, nan));
  CHECK(cli::are_of_one_model(all, all));

  const Probe scalars{.numbers = {500, -1}, .apart = {}, .unit = 500};
  CHECK(cli::are_of_one_model(scalars, {.numbers = {500.4f, -1}, .apart = {}, .unit = 500.4f}));
  CHECK(!cli::are_of_one_model(scalars, {.numbers = {500.6f, -1}, .apart = {}, .unit = 500.6f}));

  // Another expert for one token changes the row behind it, and one pair.
  const Probe mixture{.numbers = {-1, -2}, .apart = {-3, -4, -5, -6}};
  CHECK(cli::are_of_one_model(mixture, {.numbers = {-1, -2.5}, .apart = {-3, -4, -5.5, -6}}));
  CHECK(!cli::are_of_one_model(mixture, {.numbers = {-1, -2.5}, .apart = {-3, -4.5, -5.5, -6}}));
  CHECK(cli::largest_difference(mixture, {.numbers = {-1, -2}, .apart = {-3, -4.5, -5, -6}}) ==
        doctest::Approx(0.5));
}

TEST_CASE("a probe of a mixture has pairs of tokens, and tells a router's adapter") {
  const std::string base = golden_model("mixtral"),
                    adapter = golden_path("adapters/mixture_rslora");
  const auto plain = models::stream_model(base, "", {}),
             adapted = models::stream_model(base, adapter, {});
  const Probe before = cli::probe_of(*adapted.model);
  CHECK(before.numbers.size() == 31);
  CHECK(before.apart.size() == 31);
  CHECK(cli::are_of_one_model(before, cli::probe_of(*adapted.model)));
  CHECK(!cli::are_of_one_model(before, cli::probe_of(*plain.model)));
  const auto merged = models::stream_merged(base, *adapted.weights, false);
  CHECK(cli::are_of_one_model(before, cli::probe_of(*merged.model)));
  CHECK(cli::probe_of(*models::load_model(golden_model("llama"))).apart.empty());
}
