// Models that clients train: how they are made, trained, saved and loaded.
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/serve/answering.h"
#include "temper/serve/asked.h"
#include "temper/tinker/service.h"

namespace temper::tinker {
namespace {

using serve::Members;

constexpr int64_t kShortestTtl = 1, kLongestTtl = int64_t{10} * 366 * 24 * 3600;  // seconds

class Digest {
 public:
  Digest() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  Digest& add(std::string_view text) {
    const uint64_t size = text.size();
    XXH3_128bits_update(state_.get(), &size, sizeof size);
    XXH3_128bits_update(state_.get(), text.data(), text.size());
    return *this;
  }
  template <class T>
  Digest& add_all(const std::vector<T>& values) {
    return add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return std::to_string(hash.high64) + ":" + std::to_string(hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

std::optional<int64_t> seq_of(Members& members) { return members.integer("seq_id", 1, INT32_MAX); }

std::string model_id_of(const std::string& session, int64_t number) {
  return session + ":train:" + std::to_string(number);
}

AdapterRequest read_lora(const Json* lora, int64_t most_rank) {
  if (!lora || !lora->is_object())
    throw DataError(
        "`lora_config`: expected one; the whole model is not trained by this API: "
        "temper sft and temper grpo do that");
  Members members(*lora);
  AdapterRequest request;
  request.rank = members.integer("rank", 1, most_rank).value_or(32);
  const std::optional<int64_t> seed = members.integer("seed", INT64_MIN, INT64_MAX);
  request.seed = seed ? static_cast<uint64_t>(*seed) : 0;
  const auto flag = [&](const char* key) { return !members.find(key) || members.flag(key); };
  request.train_attn = flag("train_attn");
  request.train_mlp = flag("train_mlp");
  request.train_unembed = flag("train_unembed");
  return request;
}

void check_optimizer(const Json* config) {
  if (!config) return;
  if (!config->is_object()) serve::wrong("optimizer_config", *config, "an object");
  const Json type = config->value("type", Json("adamw"));
  if (type != "adamw")
    serve::wrong("optimizer_config.type", type, "adamw, the one optimizer of this server");
}

Json object_or_null(const Json* value, const char* key) {
  if (!value) return Json();
  if (!value->is_object()) serve::wrong(key, *value, "an object");
  return *value;
}

AdamFields read_adam(Members& members) {
  const Json* params = members.find("adam_params");
  if (!params) params = members.find("optim_params");
  if (members.find("optimizer_params"))
    throw DataError("`optimizer_params`: this server's models step with AdamW; send adam_params");
  if (!params || !params->is_object())
    serve::wrong("adam_params", params ? *params : Json(), "an object");
  Members fields(*params);
  AdamFields adam;
  fields.number("learning_rate", adam.learning_rate, 0, 1e6, false, "a number from 0 on");
  fields.number("beta1", adam.beta1, 0, 1, false, "a number from 0 to below 1");
  fields.number("beta2", adam.beta2, 0, 1, false, "a number from 0 to below 1");
  check<DataError>(adam.beta1 < 1 && adam.beta2 < 1, "`beta1`, `beta2`: expected less than 1");
  fields.number("eps", adam.eps, 0, 1e6, false, "a number from 0 on");
  fields.number("weight_decay", adam.weight_decay, 0, 1e6, false, "a number from 0 on");
  fields.number("grad_clip_norm", adam.grad_clip_norm, 0, 1e30, false,
                "a number from 0 on; 0: no clipping");
  return adam;
}

}  // namespace

std::string digest_of(std::string_view route, const Json& body) {
  return Digest().add(route).add(dump_json(body)).text();
}

std::string digest_of(const ForwardBackwardRequest& request) {
  Digest digest;
  digest.add(request.loss_fn).add(request.forward_only ? "forward" : "both");
  for (const auto& [key, value] : request.config) {
    digest.add(key);
    if (const double* const number = std::get_if<double>(&value))
      digest.add({reinterpret_cast<const char*>(number), sizeof *number});
    else
      digest.add(std::get<std::string>(value));
  }
  for (const WireDatum& datum : request.data) {
    digest.add_all(datum.tokens);
    for (const auto& [key, tensor] : datum.inputs)
      digest.add(key)
          .add_all(tensor.shape)
          .add_all(tensor.values)
          .add_all(tensor.integers)
          .add_all(tensor.crow)
          .add_all(tensor.columns);
  }
  return digest.text();
}

Service::ModelPointer Service::model_of(const std::string& id) {
  const auto found = models_.find(id);
  if (found == models_.end())
    throw serve::Refusal(404, "model_id: unknown `" + id.substr(0, 200) +
                                  "`: it was unloaded, or the server was started again; "
                                  "create_training_client_from_state goes on from what was saved");
  session_of(found->second->session);
  return found->second;
}

// A model whose adapter `make` makes, on the thread that owns the base. `result`: of its future.
Json Service::add_model(const std::string& session_id, int64_t number, const std::string& digest,
                        RunRecord record, std::function<std::unique_ptr<TrainedAdapter>()> make,
                        Json result) {
  check_open();
  const std::string id = model_id_of(session_id, number);
  const AdapterRequest form{record.rank, 0, record.train_attn, record.train_mlp,
                            record.train_unembed};
  const int64_t bytes = training_bytes(widths_, form);
  const auto model = std::make_shared<Model>();
  {
    const std::lock_guard lock(mutex_);
    Session& session = session_of(session_id);
    const auto answer = [&](const std::string& future) {
      return Json{{"request_id", future}, {"model_id", id}};
    };
    if (const auto found = models_.find(id); found != models_.end()) {
      check<DataError>(found->second->digest == digest, "model_seq_id: ", number,
                       " was another request's; expected the next number");
      return answer(found->second->future);
    }
    check<DataError>(
        std::find(session.models.begin(), session.models.end(), id) == session.models.end(),
        "model_seq_id: ", number, " was that of a model that was unloaded");
    check<ConfigError>(models_.size() < options_.most_models, "the server trains at most ",
                       options_.most_models, " models at once; finish a session, or unload_model");
    check<ConfigError>(adapter_bytes_ + bytes <= options_.adapter_bytes,
                       "no memory for the adapter: it takes ", bytes, " bytes in training, and of ",
                       options_.adapter_bytes, " bytes ", adapter_bytes_,
                       " are in use; take a smaller rank, or unload_model");
    model->id = record.id = id;
    model->session = record.session_id = session_id;
    model->digest = digest;
    model->bytes = bytes;
    record.created = record.last = seconds_now();
    model->record = record;
    model->future = futures_.open();
    models_[id] = model;
    session.models.push_back(id);
    adapter_bytes_ += bytes;
    result["model_id"] = id;
    controls_.push_back([this, model, make = std::move(make), result] {
      try {
        model->adapter = make();
        store_.add_run(model->record);
        {
          const std::lock_guard inner(mutex_);
          model->ready = true;
        }
        futures_.resolve(model->future, dump_json(result));
      } catch (const std::exception& e) {
        futures_.fail(model->future, e.what(), FailureCategory::kUser);
        end_model(model, e.what());
      }
    });
  }
  sampling_.wake();
  return {{"request_id", model->future}, {"model_id", id}};
}

Json Service::create_model(const Json& body) {
  Members members(body);
  const std::string session = members.text("session_id"), base = members.text("base_model");
  const int64_t number = members.integer("model_seq_id", 0, INT32_MAX).value_or(0);
  {
    const std::lock_guard lock(mutex_);
    session_of(session);
  }
  check_base(base);
  check_optimizer(members.find("optimizer_config"));
  const AdapterRequest request = read_lora(members.find("lora_config"), options_.most_rank);
  RunRecord record;
  record.base_model = base;
  record.rank = request.rank;
  record.train_attn = request.train_attn;
  record.train_mlp = request.train_mlp;
  record.train_unembed = request.train_unembed;
  record.user_metadata = object_or_null(members.find("user_metadata"), "user_metadata");
  return add_model(session, number, digest_of("create_model", body), std::move(record),
                   [this, request] { return std::make_unique<TrainedAdapter>(places_, request); },
                   {{"type", "create_model"}});
}

Json Service::load_weights(const Json& body) {
  Members members(body);
  const std::string path = members.text("path"), session = members.text("session_id"),
                    model_id = members.text("model_id");
  const bool optimizer = members.flag("optimizer");
  if (session.empty() && model_id.empty())
    throw DataError("load_weights: expected model_id and seq_id, or session_id and model_seq_id");
  const auto find = [this, path] {
    const Checkpoint saved = store_.checkpoint(path);
    check<ConfigError>(saved.kind == kTrainingWeights, "path: ", path,
                       " was saved for sampling; expected one of save_weights "
                       "(tinker://RUN/weights/NAME)");
    return store_.directory_of(saved);
  };
  if (!session.empty()) {
    {
      const std::lock_guard lock(mutex_);
      session_of(session);
    }
    check_optimizer(members.find("optimizer_config"));
    const std::string directory = find();
    RunRecord record = store_.run(store_.checkpoint(path).run);
    if (const std::string base = members.text("base_model"); !base.empty()) {
      check_base(base);
      record.base_model = base;
    }
    record.user_metadata = object_or_null(members.find("user_metadata"), "user_metadata");
    return add_model(session, members.integer("model_seq_id", 0, INT32_MAX).value_or(0),
                     digest_of("load_weights", body), std::move(record),
                     [this, directory, optimizer] {
                       return std::make_unique<TrainedAdapter>(places_, directory, optimizer);
                     },
                     {{"type", "load_weights"}, {"path", path}});
  }
  return enqueue(
      model_id, seq_of(members), digest_of("load_weights", body), 0, [&] { find(); },
      [&](const ModelPointer& model, const std::string& future) {
        return [=, this] {
          model->adapter->load(find(), optimizer);
          futures_.resolve(
              future,
              dump_json(Json{{"type", "load_weights"}, {"path", path}, {"model_id", model->id}}));
          return true;
        };
      });
}

Json Service::get_info(const Json& body) {
  Members members(body);
  const std::lock_guard lock(mutex_);
  const ModelPointer model = model_of(members.text("model_id"));
  const RunRecord& run = model->record;
  Json data{{"model_name", run.base_model}};
  if (options_.has_tokenizer) data["tokenizer_id"] = options_.model_directory;
  return {{"type", "get_info"},           {"model_id", model->id}, {"model_data", data},
          {"model_name", run.base_model}, {"is_lora", true},       {"lora_rank", run.rank}};
}

Json Service::unload_model(const Json& body) {
  Members members(body);
  ModelPointer model;
  {
    const std::lock_guard lock(mutex_);
    model = model_of(members.text("model_id"));
  }
  const std::string future = futures_.open();
  later([this, model, future] {
    end_model(model, "the model was unloaded");
    futures_.resolve(future, dump_json(Json{{"type", "unload_model"}, {"model_id", model->id}}));
  });
  return {{"request_id", future}, {"model_id", model->id}};
}

Json Service::forward_backward(ForwardBackwardRequest request) {
  const std::string digest = digest_of(request), model_id = request.model_id;
  const std::optional<int64_t> seq =
      request.seq_id != 0 ? std::optional(request.seq_id) : std::nullopt;
  int64_t bytes = 0;
  for (const WireDatum& datum : request.data) {
    bytes += static_cast<int64_t>(datum.tokens.size() * sizeof(int32_t));
    for (const auto& [name, tensor] : datum.inputs)
      bytes += static_cast<int64_t>(tensor.size()) * 24;  // as a target
  }
  const auto batch = std::make_shared<LossBatch>();
  const auto validate = [&] {
    *batch = check_batch(std::move(request),
                         {model_.vocab_size, options_.most_positions, most_trained_});
  };
  return enqueue(model_id, seq, digest, bytes, validate,
                 [&](const ModelPointer& model, const std::string& future) {
                   const auto running = std::make_shared<std::unique_ptr<ForwardBackward>>();
                   return [=, this] {
                     if (!*running)
                       *running = std::make_unique<ForwardBackward>(
                           model_, *model->adapter, std::move(*batch), options_.pass_tokens);
                     if (!(*running)->step()) return false;
                     futures_.resolve(future, (*running)->result(), true);
                     return true;
                   };
                 });
}

Json Service::optim_step(const Json& body) {
  Members members(body);
  AdamFields adam;
  return enqueue(
      members.text("model_id"), seq_of(members), digest_of("optim_step", body), 0,
      [&] { adam = read_adam(members); },
      [&](const ModelPointer& model, const std::string& future) {
        return [=, this] {
          const double norm = model->adapter->step(adam);
          futures_.resolve(
              future,
              dump_json(
                  Json{{"metrics", {{"grad_norm", norm}, {"learning_rate", adam.learning_rate}}}}));
          return true;
        };
      });
}

namespace {

// What a client says of a checkpoint that is to be saved.
Store::Save read_save(Members& members, const std::string& run, const char* kind) {
  Store::Save save{run, kind, members.text("path")};
  if (save.name.empty()) save.name = "seq-" + std::to_string(seq_of(members).value_or(0));
  save.overwrite = members.flag("overwrite");
  save.ttl_seconds = members.integer("ttl_seconds", kShortestTtl, kLongestTtl);
  save.user_metadata = object_or_null(members.find("user_metadata"), "user_metadata");
  return save;
}

}  // namespace

Json Service::save_weights(const Json& body) {
  Members members(body);
  const std::string model_id = members.text("model_id");
  Store::Save save;
  return enqueue(
      model_id, seq_of(members), digest_of("save_weights", body), 0,
      [&] {
        save = read_save(members, model_id, kTrainingWeights);
        store_.check_name(save);
      },
      [&](const ModelPointer& model, const std::string& future) {
        return [=, this] {
          const Checkpoint saved = store_.save(save, [&](const std::string& directory) {
            model->adapter->save(options_.model_directory, directory, true);
          });
          futures_.resolve(future,
                           dump_json(Json{{"type", "save_weights"}, {"path", saved.path()}}));
          return true;
        };
      });
}

Json Service::save_weights_for_sampler(const Json& body) {
  Members members(body);
  const std::string model_id = members.text("model_id");
  const std::optional<int64_t> number = members.integer("sampling_session_seq_id", 0, INT64_MAX);
  Store::Save save;
  bool inflight = false;
  return enqueue(
      model_id, seq_of(members), digest_of("save_weights_for_sampler", body), 0,
      [&] {
        const Json kind = members.find("kind") ? *members.find("kind") : Json("snapshot");
        if (kind != "snapshot" && kind != "inflight")
          serve::wrong("kind", kind, "snapshot or inflight");
        inflight = kind == "inflight";
        if (members.find("path")) {
          save = read_save(members, model_id, kSamplerWeights);
          store_.check_name(save);
        } else if (!number) {
          throw DataError(
              "save_weights_for_sampler: expected `path`, or "
              "`sampling_session_seq_id` for a sampler that is not saved");
        }
      },
      [&](const ModelPointer& model, const std::string& future) -> std::function<bool()> {
        Json answer{{"type", "save_weights_for_sampler"}};
        if (!save.name.empty())
          return [=, this] {
            const Checkpoint saved = store_.save(save, [&](const std::string& directory) {
              model->adapter->save(options_.model_directory, directory, false);
            });
            Json done = answer;
            done["path"] = saved.path();
            futures_.resolve(future, dump_json(done));
            return true;
          };
        const std::string id = model->session + ":sample:" + std::to_string(*number);
        return [=, this] {
          {
            const std::lock_guard lock(mutex_);
            SamplerPointer sampler = add_sampler(session_of(model->session), id, "snapshot");
            sampler->base_model = model->record.base_model;
            sampler->model = model->id;
            sampler->is_inflight = inflight;
          }
          SamplerPointer sampler;
          {
            const std::lock_guard lock(mutex_);
            sampler = samplers_.at(id);
          }
          snapshot(model, sampler);
          Json done = answer;
          done["sampling_session_id"] = id;
          futures_.resolve(future, dump_json(done));
          return true;
        };
      });
}

}  // namespace temper::tinker
