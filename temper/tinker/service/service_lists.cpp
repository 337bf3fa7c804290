// What is saved, as clients list it.
#include <algorithm>

#include "temper/base/error.h"
#include "temper/serve/asked.h"
#include "temper/tinker/service/service.h"

namespace temper::tinker {
namespace {

Json checkpoint_json(const Checkpoint& c) {
  Json json{{"checkpoint_id", c.id()},
            {"checkpoint_type", c.kind == kTrainingWeights ? "training" : "sampler"},
            {"time", time_text(c.created)},
            {"tinker_path", c.path()},
            {"size_bytes", c.bytes},
            {"public", c.is_public},
            {"user_metadata", c.user_metadata}};
  json["expires_at"] = c.expires ? Json(time_text(*c.expires)) : Json();
  return json;
}

Json cursor(int64_t limit, int64_t offset, size_t total) {
  return {{"offset", offset}, {"limit", limit}, {"total_count", total}};
}

// Items [offset, offset + limit).
template <class T>
std::vector<T> page(const std::vector<T>& all, int64_t limit, int64_t offset) {
  const int64_t begin = std::min(offset, std::ssize(all)),
                end = begin + std::min(limit, std::ssize(all) - begin);
  return {all.begin() + begin, all.begin() + end};
}

}  // namespace

Json Service::run_json(const RunRecord& run) const {
  Json json{{"training_run_id", run.id},
            {"base_model", run.base_model},
            {"model_owner", "local"},
            {"is_lora", true},
            {"lora_rank", run.rank},
            {"corrupted", false},
            {"last_request_time", time_text(run.last)},
            {"user_metadata", run.user_metadata}};
  for (const auto& [key, kind] : {std::pair("last_checkpoint", kTrainingWeights),
                                  std::pair("last_sampler_checkpoint", kSamplerWeights)}) {
    json[key] = nullptr;
    for (const Checkpoint& c : store_.checkpoints(run.owner, run.id))
      if (c.kind == kind) {
        json[key] = checkpoint_json(c);
        break;
      }
  }
  return json;
}

Json Service::training_run(const std::string& owner, const std::string& id) const {
  return run_json(store_.run(owner, id));
}

Json Service::training_runs(const std::string& owner, int64_t limit, int64_t offset) const {
  const std::vector<RunRecord> all = store_.runs(owner);
  Json runs = Json::array();
  for (const RunRecord& run : page(all, limit, offset)) runs.push_back(run_json(run));
  return {{"training_runs", runs}, {"cursor", cursor(limit, offset, all.size())}};
}

Json Service::checkpoints(const std::string& owner, const std::string& run, int64_t limit,
                          int64_t offset) const {
  if (!run.empty()) store_.run(owner, run);  // throws where there is none
  const std::vector<Checkpoint> all = store_.checkpoints(owner, run);
  Json list = Json::array();
  for (const Checkpoint& c : run.empty() ? page(all, limit, offset) : all)
    list.push_back(checkpoint_json(c));
  Json answer{{"checkpoints", list}};
  if (run.empty()) answer["cursor"] = cursor(limit, offset, all.size());
  return answer;
}

Json Service::weights_info(const std::string& owner, const Json& body) {
  serve::Members members(body);
  const RunRecord run = store_.run_of(owner, members.text("tinker_path"));
  return {{"base_model", run.base_model}, {"is_lora", true},
          {"lora_rank", run.rank},        {"train_unembed", run.train_unembed},
          {"train_mlp", run.train_mlp},   {"train_attn", run.train_attn}};
}

}  // namespace temper::tinker
