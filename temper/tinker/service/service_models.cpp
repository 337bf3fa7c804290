// Models that clients train: how they are made, loaded and ended.
#include <algorithm>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/serve/answering.h"
#include "temper/tinker/digest.h"
#include "temper/tinker/service/service.h"
#include "temper/tinker/service/service_fields.h"

namespace temper::tinker {
namespace {

using serve::Members;

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

}  // namespace

Service::ModelPointer Service::model_of(const std::string& owner, const std::string& id) {
  check_named("model_id", id, "create_model");
  const auto found = models_.find(id);
  if (found == models_.end() || found->second->owner != owner)
    throw serve::Refusal(404, "model_id: unknown `" + id.substr(0, 200) +
                                  "`: it was unloaded, or the server was started again; "
                                  "create_training_client_from_state goes on from what was saved");
  session_of(owner, found->second->session);
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
    Session& session = session_of(record.owner, session_id);
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
    Share count, held;
    for (const auto& [other, one] : models_) {
      count.add(one->owner, one->session, {record.owner, session_id}, 1);
      held.add(one->owner, one->session, {record.owner, session_id}, one->bytes);
    }
    check<ConfigError>(!count.is_beyond(1, static_cast<int64_t>(options_.most_models)),
                       "the server trains at most ", options_.most_models, " models at once",
                       kShares, "; finish a session, or unload_model");
    check<ConfigError>(!held.is_beyond(bytes, options_.adapter_bytes),
                       "no memory for the adapter: it takes ", bytes, " bytes in training, and of ",
                       options_.adapter_bytes, " bytes", kShares, ", ", held.all,
                       " are in use; take a smaller rank, or unload_model");
    model->id = record.id = id;
    model->owner = record.owner;
    model->session = record.session_id = session_id;
    model->digest = digest;
    model->bytes = bytes;
    record.created = record.last = seconds_now();
    model->record = record;
    model->future = futures_.open({model->owner, session_id});
    models_[id] = model;
    session.models.push_back(id);
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

Json Service::create_model(const std::string& owner, const Json& body) {
  Members members(body);
  const std::string session = members.text("session_id"), base = members.text("base_model");
  const int64_t number = members.integer("model_seq_id", 0, INT32_MAX).value_or(0);
  {
    const std::lock_guard lock(mutex_);
    session_of(owner, session);
  }
  check_base(base);
  check_optimizer(members.find("optimizer_config"));
  const AdapterRequest request = read_lora(members.find("lora_config"), options_.most_rank);
  RunRecord record;
  record.owner = owner;
  record.base_model = base;
  record.rank = request.rank;
  record.train_attn = request.train_attn;
  record.train_mlp = request.train_mlp;
  record.train_unembed = request.train_unembed;
  record.user_metadata = metadata_of(members.find("user_metadata"));
  return add_model(session, number, digest_of("create_model", body), std::move(record),
                   [this, request] { return std::make_unique<TrainedAdapter>(places_, request); },
                   {{"type", "create_model"}});
}

// Of what was saved for training. Throws what is wrong with the path.
std::string Service::directory_to_load(const std::string& owner, const std::string& path) const {
  const Checkpoint saved = store_.checkpoint(owner, path);
  check<ConfigError>(saved.kind == kTrainingWeights, "path: ", path,
                     " was saved for sampling; expected one of save_weights "
                     "(tinker://RUN/weights/NAME)");
  return store_.directory_of(saved);
}

Json Service::load_weights(const std::string& owner, const Json& body) {
  Members members(body);
  const std::string session = members.text("session_id"), model_id = members.text("model_id");
  std::string path;
  bool optimizer = false;
  if (session.empty() && model_id.empty())
    throw DataError("load_weights: expected model_id and seq_id, or session_id and model_seq_id");
  const auto read = [&] {
    path = members.text("path");
    optimizer = members.flag("optimizer");
  };
  if (!session.empty()) {
    {
      const std::lock_guard lock(mutex_);
      session_of(owner, session);
    }
    read();
    check_optimizer(members.find("optimizer_config"));
    const std::string directory = directory_to_load(owner, path);
    RunRecord record = store_.run_of(owner, path);
    record.owner = owner;
    if (const std::string base = members.text("base_model"); !base.empty()) {
      check_base(base);
      record.base_model = base;
    }
    record.user_metadata = metadata_of(members.find("user_metadata"));
    return add_model(session, members.integer("model_seq_id", 0, INT32_MAX).value_or(0),
                     digest_of("load_weights", body), std::move(record),
                     [this, directory, optimizer] {
                       return std::make_unique<TrainedAdapter>(places_, directory, optimizer);
                     },
                     {{"type", "load_weights"}, {"path", path}});
  }
  return enqueue(
      owner, model_id, seq_of(members), digest_of("load_weights", body), 0,
      [&] {
        read();
        directory_to_load(owner, path);
      },
      [&](const ModelPointer& model, const std::string& future) {
        return Job{.step = [=, this] {
          model->adapter->load(directory_to_load(owner, path), optimizer);
          futures_.resolve(
              future,
              dump_json(Json{{"type", "load_weights"}, {"path", path}, {"model_id", model->id}}));
          return true;
        }};
      });
}

Json Service::get_info(const std::string& owner, const Json& body) {
  Members members(body);
  const std::lock_guard lock(mutex_);
  const ModelPointer model = model_of(owner, members.text("model_id"));
  const RunRecord& run = model->record;
  Json data{{"model_name", run.base_model}};
  if (options_.has_tokenizer) data["tokenizer_id"] = options_.model_directory;
  return {{"type", "get_info"},           {"model_id", model->id}, {"model_data", data},
          {"model_name", run.base_model}, {"is_lora", true},       {"lora_rank", run.rank}};
}

Json Service::unload_model(const std::string& owner, const Json& body) {
  Members members(body);
  ModelPointer model;
  {
    const std::lock_guard lock(mutex_);
    model = model_of(owner, members.text("model_id"));
  }
  const std::string future = futures_.open({model->owner, model->session});
  later([this, model, future] {
    end_model(model, "the model was unloaded");
    futures_.resolve(future, dump_json(Json{{"type", "unload_model"}, {"model_id", model->id}}));
  });
  return {{"request_id", future}, {"model_id", model->id}};
}

}  // namespace temper::tinker
