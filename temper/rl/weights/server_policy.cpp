#include "temper/rl/weights/server_policy.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <filesystem>

#include "temper/base/error.h"
#include "temper/metrics/trace.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/save.h"

namespace temper::rl {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "step-";

}  // namespace

void check_server_takes(const RlConfig& config, const train::Policy& policy) {
  if (!policy.lora || !config.adapter.path) return;
  const bool syncs = config.rollout.server.sync == generate::ServerSection::Sync::kDisk,
             rows = !policy.lora->trained_tokens.empty();
  config.require(!syncs || !rows || config.servers_take_rows(), "adapter.path",
                 "the adapter has rows of embeddings (trainable_token_indices), which servers of "
                 "kind ",
                 config.rollout.server.kind, " do not take; merge it (temper export)");
  config.require(config.model.new_tokens.empty() || (syncs && rows), "adapter.path",
                 "the adapter was trained with new tokens (model.new_tokens), whose rows the "
                 "servers of rollout.server do not get; merge it (temper export)");
}

ServerPolicy::ServerPolicy(const RlConfig& config, train::Policy& policy, const dist::Mesh& mesh,
                           train::Messages& messages, std::function<bool()> stop)
    : config_(config),
      policy_(policy),
      world_(mesh.world),
      syncs_(config.rollout.server.sync == generate::ServerSection::Sync::kDisk),
      shared_out_(mesh.model->size() > 1),
      messages_(messages),
      servers_(config, policy, mesh),
      engine_(servers_.pool(), policy.tokenizer) {
  check_server_takes(config, policy);
  const std::string directory =
      config.rollout.server.weights_dir.value_or(config.output_dir + "/weights");
  // Each call is a new event, though its words may be the same.
  const auto warn = [&messages, number = int64_t{0}](const std::string& text) mutable {
    messages.warn_once(str("rollout.server ", number++), text);
  };
  engine_.watch(warn, std::move(stop));
  if (!syncs_) return;
  try {
    fs::create_directories(directory);
  } catch (const fs::filesystem_error& e) {
    throw ConfigError(str(config.where("rollout.server.weights_dir"), ": ", directory,
                          " cannot be made: ", e.code().message()));
  }
  weights_dir_ = fs::absolute(directory).lexically_normal().string();
  while (weights_dir_.ends_with("/")) weights_dir_.pop_back();
}

std::string ServerPolicy::directory(int64_t version) const {
  return str(weights_dir_, "/", kPrefix, version);
}

// The adapter, or the whole model in the numbers that the trainer computes with. Where ranks share
// the model out all of them call this, with an empty path where another one writes.
void ServerPolicy::write(const std::string& path) const {
  if (policy_.lora)
    return models::save_adapter(*policy_.model, *policy_.lora, config_.model.path, path);
  const bool bfloat16 = config_.model.dtype == models::ModelSection::Dtype::kBfloat16;
  const at::ScalarType dtype = bfloat16 ? at::kBFloat16 : at::kFloat;
  if (!path.empty())
    models::write_model_files(
        {config_.model.path, config_.model.path, !policy_.model->whole.empty()}, path, dtype);
  models::save_weights(*policy_.model, path, dtype);
}

// A directory is there whole or not at all.
void ServerPolicy::keep(int64_t version) {
  if (!syncs_ || version == kept_) return;
  const trace::Span span("weights for the servers");
  if (world_->rank() == 0) {
    const std::string temporary = str(weights_dir_, "/.", kPrefix, version, ".tmp-", ::getpid());
    try {
      fs::remove_all(temporary);
      write(temporary);
      fs::remove_all(directory(version));
      fs::rename(temporary, directory(version));
    } catch (const fs::filesystem_error& e) {
      throw RunError(str("weights for the servers: ", e.what()));
    }
  } else if (shared_out_) {
    write({});
  }
  world_->barrier();  // they are there for all
  kept_ = version;
}

void ServerPolicy::remove_before(int64_t version) const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(weights_dir_, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string number = name.substr(std::min(name.size(), std::string(kPrefix).size()));
    if (!name.starts_with(kPrefix) || number.empty() || number.size() > 18 ||
        number.find_first_not_of("0123456789") != std::string::npos)
      continue;
    if (std::stoll(number) < version) fs::remove_all(entry.path(), ignored);
  }
}

// A server that was gone gets the present version, so the one before it is enough to keep.
void ServerPolicy::use(int64_t version) {
  for (const std::string& warning : servers_.warnings()) messages_.warn_once(warning, warning);
  if (!syncs_) return;
  if (version > kept_) keep(version);
  engine_.set_weights({str("temper-step-", version), directory(version), policy_.lora.has_value()});
  if (world_->rank() == 0) remove_before(version - 1);
}

}  // namespace temper::rl
