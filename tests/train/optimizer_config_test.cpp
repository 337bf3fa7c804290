// The sections `optimizer` and `train` of a config: what fits together, and what has no effect.
#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/train/config.h"
#include "tests/train/tiny.h"

using namespace temper;
using namespace temper::train;

namespace {

void read(RunConfig& config, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(),
                   {"output_dir=out", "model.path=model", "data.train=rows.jsonl"});
  read_run_config(config, arguments, "sft");
}

std::string optimizer_error(const std::vector<std::string>& arguments) {
  RunConfig config;
  try {
    read(config, arguments);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a warm-up longer than the run is cut, with a warning") {
  RunConfig config;
  read(config, {"train.max_steps=5", "optimizer.warmup_steps=6"});
  CHECK(config.optimizer.warmup_steps == 5);
  REQUIRE(config.warnings.size() == 1);
  CHECK(config.warnings[0] ==
        "command line: optimizer.warmup_steps=6: optimizer.warmup_steps: found 6, more than the 5 "
        "steps of train.max_steps: the whole run warms up");
}

TEST_CASE("a warm-up is counted in steps or as a share, not both") {
  CHECK(optimizer_error({"optimizer.warmup_steps=3", "optimizer.warmup_ratio=0.1"}) ==
        "command line: optimizer.warmup_ratio=0.1: optimizer.warmup_ratio: optimizer.warmup_steps "
        "is set too; give one of them");
  CHECK(optimizer_error({"optimizer.warmup_ratio=1.5"}).find("optimizer.warmup_ratio") !=
        std::string::npos);
}

TEST_CASE("Lion and Muon have defaults of their own, which a key overrides") {
  RunConfig lion, own, muon;
  read(lion, {"optimizer.name=lion"});
  CHECK(lion.optimizer.betas == std::array<double, 2>{0.9, 0.99});
  read(own, {"optimizer.name=lion", "optimizer.betas=[0.95, 0.98]"});
  CHECK(own.optimizer.betas == std::array<double, 2>{0.95, 0.98});
  read(muon, {"optimizer.name=muon"});
  CHECK(muon.optimizer.momentum == 0.95);
}

TEST_CASE("a resolved config with another optimizer takes that one's defaults") {
  const tiny::Folder folder;
  const std::string file = (folder.path / "resolved.yaml").string();
  RunConfig adamw, muon, lion, written;
  read(adamw, {});
  write_file_atomic(file, dump_run_config(adamw));
  read(muon, {file, "optimizer.name=muon"});
  CHECK(muon.optimizer.momentum == 0.95);
  read(lion, {file, "optimizer.name=lion"});
  CHECK(lion.optimizer.betas == std::array<double, 2>{0.9, 0.99});
  // What the user wrote stays.
  RunConfig own;
  read(own, {"optimizer.betas=[0.9, 0.95]"});
  write_file_atomic(file, dump_run_config(own));
  read(written, {file, "optimizer.name=lion"});
  CHECK(written.optimizer.betas == std::array<double, 2>{0.9, 0.95});
}

TEST_CASE("keys of another optimizer or schedule: an error for momentum, else a warning") {
  CHECK(
      optimizer_error({"optimizer.momentum=0.9"}) ==
      "command line: optimizer.momentum=0.9: optimizer.momentum: found 0.9, expected 0: adamw does "
      "not read this key; these optimizers do: muon, sgd; adamw has betas");
  CHECK(optimizer_error({"optimizer.name=adafactor", "optimizer.momentum=0.9"})
            .ends_with("adafactor does not read this key; these optimizers do: muon, sgd"));
  RunConfig config;
  read(config, {"optimizer.name=sgd", "optimizer.eps=1e-6", "optimizer.decay_steps=3"});
  REQUIRE(config.warnings.size() == 2);
  CHECK(config.warnings[0] ==
        "command line: optimizer.eps=1e-6: optimizer.eps has no effect with optimizer.name: sgd");
  CHECK(config.warnings[1] ==
        "command line: optimizer.decay_steps=3: optimizer.decay_steps has no effect with "
        "optimizer.schedule: cosine");
}

TEST_CASE("an unknown optimizer is refused with those that there are") {
  const std::string error = optimizer_error({"optimizer.name=adamw8bits"});
  CHECK(error.find("optimizer.name") != std::string::npos);
  CHECK(error.find("adamw8bit") != std::string::npos);
}

TEST_CASE("groups and freezing are read from lists, and the resolved config reads back quietly") {
  RunConfig config, again;
  read(config, {"optimizer.name=lion", "optimizer.schedule=wsd", "optimizer.decay_steps=5",
                "optimizer.groups=[{match: '*.embed_tokens.*', learning_rate: 1e-5}]",
                "train.freeze=['*.layers.0.*']", "train.neftune_alpha=5", "train.z_loss=1e-4"});
  REQUIRE(config.optimizer.groups.size() == 1);
  CHECK(config.optimizer.groups[0].learning_rate == 1e-5);
  CHECK_FALSE(config.optimizer.groups[0].weight_decay);
  const std::string text = dump_run_config(config);
  again.written = parse_yaml(text, "config.yaml");
  read_fields(again.written, "", Fields::of(again));
  again.resolve("sft");
  CHECK(dump_run_config(again) == text);
  CHECK(again.warnings.empty());
  CHECK(optimizer_error({"optimizer.groups=[{learning_rate: 1e-5}]"}).find("match is required") !=
        std::string::npos);
}
