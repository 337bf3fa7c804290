// What is saved of a model, and samplers of its weights.
#include "temper/base/error.h"
#include "temper/serve/asked.h"
#include "temper/tinker/digest.h"
#include "temper/tinker/service/service.h"
#include "temper/tinker/service/service_fields.h"

namespace temper::tinker {
namespace {

using serve::Members;

constexpr int64_t kShortestTtl = 1, kLongestTtl = int64_t{10} * 366 * 24 * 3600;  // seconds

// What a client says of a checkpoint that is to be saved.
Store::Save read_save(Members& members, const std::string& run, const char* kind) {
  Store::Save save{run, kind, members.text("path")};
  if (save.name.empty()) save.name = "seq-" + std::to_string(seq_of(members).value_or(0));
  save.overwrite = members.flag("overwrite");
  save.ttl_seconds = members.integer("ttl_seconds", kShortestTtl, kLongestTtl);
  save.user_metadata = metadata_of(members.find("user_metadata"));
  return save;
}

}  // namespace

Json Service::save_weights(const std::string& owner, const Json& body) {
  Members members(body);
  const std::string model_id = members.text("model_id");
  Store::Save save;
  return enqueue(
      owner, model_id, seq_of(members), digest_of("save_weights", body), 0,
      [&] {
        save = read_save(members, model_id, kTrainingWeights);
        store_.check_name(save);
      },
      [&](const ModelPointer& model, const std::string& future) {
        return Job{.step = [=, this] {
          const Checkpoint saved = store_.save(save, [&](const std::string& directory) {
            model->adapter->save(options_.model_directory, directory, true);
          });
          futures_.resolve(future,
                           dump_json(Json{{"type", "save_weights"}, {"path", saved.path()}}));
          return true;
        }};
      });
}

Json Service::save_weights_for_sampler(const std::string& owner, const Json& body) {
  Members members(body);
  const std::string model_id = members.text("model_id");
  std::optional<int64_t> number;
  Store::Save save;
  bool inflight = false;
  return enqueue(
      owner, model_id, seq_of(members), digest_of("save_weights_for_sampler", body), 0,
      [&] {
        const Json kind = members.find("kind") ? *members.find("kind") : Json("snapshot");
        if (kind != "snapshot" && kind != "inflight")
          serve::wrong("kind", kind, "snapshot or inflight");
        inflight = kind == "inflight";
        number = members.integer("sampling_session_seq_id", 0, INT64_MAX);
        if (members.find("path")) {
          save = read_save(members, model_id, kSamplerWeights);
          store_.check_name(save);
        } else if (!number) {
          throw DataError(
              "save_weights_for_sampler: expected `path`, or "
              "`sampling_session_seq_id` for a sampler that is not saved");
        }
      },
      [&](const ModelPointer& model, const std::string& future) {
        Json answer{{"type", "save_weights_for_sampler"}};
        if (!save.name.empty())
          return Job{.step = [=, this] {
            const Checkpoint saved = store_.save(save, [&](const std::string& directory) {
              model->adapter->save(options_.model_directory, directory, false);
            });
            Json done = answer;
            done["path"] = saved.path();
            futures_.resolve(future, dump_json(done));
            return true;
          }};
        const std::string id = model->session + ":sample:" + std::to_string(*number);
        return Job{.step = [=, this] {
          SamplerPointer sampler;
          {
            const std::lock_guard lock(mutex_);
            sampler = add_sampler(session_of(model->owner, model->session), id, "snapshot");
            sampler->base_model = model->record.base_model;
            sampler->model = model->id;
            sampler->is_inflight = inflight;
          }
          snapshot(model, sampler);
          Json done = answer;
          done["sampling_session_id"] = id;
          futures_.resolve(future, dump_json(done));
          return true;
        }};
      });
}

}  // namespace temper::tinker
