// How a run keeps the weights of a base whose files hold them quantized.
#include <c10/util/Logging.h>  // whose CHECK is not the one below
#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "temper/dist/group.h"
#include "temper/models/files/load.h"
#include "temper/train/roles/policy.h"
#include "temper/train/roles/roles.h"
#include "temper/train/sft/sft.h"
#include "tests/golden.h"

using namespace temper;
using ops::WeightFormat;

namespace {

models::Storage storage_of_run(const std::string& model, std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"output_dir=run", "data.train=rows.jsonl",
                                       "model.path=" + golden_path("models/" + model)});
  train::SftConfig config;
  read_run_config(config, overrides, "sft");
  return train::policy_storage(config);
}

std::string refusal(const std::string& model, const std::vector<std::string>& overrides) {
  try {
    storage_of_run(model, overrides);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "none";
}

const std::string kBase = "qwen3_nf4", kFloats = "qwen3";
const std::string kLora = "adapter.method=lora", kQlora = "adapter.method=qlora";

}  // namespace

TEST_CASE("a frozen base stays in its files' format unless model.storage says otherwise") {
  for (const std::string& method : {kLora, kQlora})
    for (const std::vector<std::string>& said :
         {std::vector<std::string>{method}, {method, "model.storage=file"}}) {
      const models::Storage storage = storage_of_run(kBase, said);
      CHECK(storage.file);
      CHECK(!storage.blocks);
      CHECK((storage.weights == WeightFormat::kFloat32));
    }
  const models::Storage bfloat16 = storage_of_run(kBase, {kLora, "model.dtype=bfloat16"});
  CHECK((bfloat16.file && bfloat16.weights == WeightFormat::kBFloat16));
  const models::Storage converted = storage_of_run(kBase, {kLora, "model.storage=int8"});
  CHECK((!converted.file && converted.blocks == WeightFormat::kInt8));
  CHECK(!storage_of_run(kBase, {kLora, "model.storage=float32"}).file);
  CHECK(storage_of_run(kBase, {kLora, "model.arithmetic=amx"}).file);
  // A base of floats has nothing to keep, and qlora makes nf4 of it.
  CHECK(!storage_of_run(kFloats, {kLora}).blocks);
  CHECK((storage_of_run(kFloats, {kQlora}).blocks == WeightFormat::kNf4));
  CHECK(refusal(kFloats, {kQlora, "model.storage=file"}).find("holds none quantized") !=
        std::string::npos);
}

TEST_CASE("full fine-tuning of a quantized base says in which numbers") {
  CHECK(refusal(kBase, {}).find("model.storage: float32 or bfloat16") != std::string::npos);
  CHECK(refusal(kBase, {"model.storage=file"}).find("weights that train") != std::string::npos);
  CHECK(refusal(kBase, {"model.storage=nf4"}).find("weights that train") != std::string::npos);
  const models::Storage floats = storage_of_run(kBase, {"model.storage=float32"}),
                        rounded = storage_of_run(kBase, {"model.storage=bfloat16"});
  CHECK((!floats.file && floats.weights == WeightFormat::kFloat32));
  CHECK((!rounded.file && rounded.weights == WeightFormat::kRoundedBFloat16));
  CHECK(!storage_of_run(kFloats, {}).file);
  CHECK(refusal(kFloats, {"model.storage=bfloat16"}).find("weights that train") !=
        std::string::npos);
}

TEST_CASE("a model beside the policy stays in its files' format; one that starts it is as it") {
  const std::vector<std::string> given{"output_dir=run", "data.train=rows.jsonl",
                                       "model.storage=bfloat16",
                                       "model.path=" + golden_path("models/" + kBase)};
  train::SftConfig config;
  read_run_config(config, given, "sft");
  train::Policy policy;
  policy.tensor = dist::alone();
  policy.model = models::load_model(config.model.path);
  CHECK(train::model_source(config.model.path, config, policy).storage.file);
  const models::Storage start = train::start_source(policy, config).storage;
  CHECK((!start.file && start.weights == WeightFormat::kBFloat16));
}
