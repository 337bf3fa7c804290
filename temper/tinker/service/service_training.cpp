// What trains a model: forward passes, backward passes, steps of its optimizer.
#include "temper/base/error.h"
#include "temper/serve/answering.h"
#include "temper/serve/asked.h"
#include "temper/tinker/digest.h"
#include "temper/tinker/service/service.h"
#include "temper/tinker/service/service_fields.h"

namespace temper::tinker {
namespace {

using serve::Members;

AdamFields read_adam(Members& members) {
  const Json* params = members.find("adam_params");
  if (!params) params = members.find("optim_params");
  if (members.find("optimizer_params"))
    throw DataError("`optimizer_params`: this server's models step with AdamW; send adam_params");
  if (!params || !params->is_object())
    serve::wrong("adam_params", params ? *params : Json(), "an object");
  Members fields(*params);
  AdamFields adam;
  fields.number("learning_rate", adam.learning_rate, between(0, 1e6));
  fields.number("beta1", adam.beta1, fraction());
  fields.number("beta2", adam.beta2, fraction());
  fields.number("eps", adam.eps, between(0, 1e6));
  check<DataError>(adam.eps > 0, "`eps`: found 0, expected a number above 0: parameters without a ",
                   "gradient would become NaN");
  fields.number("weight_decay", adam.weight_decay, between(0, 1e6));
  fields.number("grad_clip_norm", adam.grad_clip_norm, between(0, 1e30));  // 0: no clipping
  fields.check_no_rest();
  return adam;
}

}  // namespace

Json Service::forward_backward(const std::string& owner, ForwardBackwardRequest request) {
  const std::string digest = digest_of(request), model_id = request.model_id;
  const int64_t seq = request.seq_id;
  int64_t bytes = 0;
  for (const WireDatum& datum : request.data) {
    bytes += static_cast<int64_t>(datum.tokens.size() * sizeof(int32_t));
    for (const WireImage& image : datum.images)
      bytes += static_cast<int64_t>(image.source.bytes.size());
    for (const auto& [name, tensor] : datum.inputs)
      bytes += static_cast<int64_t>(tensor.size()) * 24;  // as a target
  }
  const auto batch = std::make_shared<LossBatch>();
  const auto validate = [&] {
    *batch = check_batch(std::move(request), {.vocabulary = model_.vocab_size,
                                              .most_positions = options_.most_positions,
                                              .most_trained = most_trained_,
                                              .chunks = options_.chunks});
  };
  return enqueue(owner, model_id, seq, digest, bytes, validate,
                 [&](const ModelPointer& model, const std::string& future) {
                   const auto running = std::make_shared<std::unique_ptr<ForwardBackward>>();
                   Job job;
                   job.passes = [=, this] {
                     if (!*running)
                       *running = std::make_unique<ForwardBackward>(
                           model_, *model->adapter, std::move(*batch), options_.pass_tokens);
                     return running->get();
                   };
                   job.step = [=, this] {
                     if (!(*running)->done()) return false;
                     futures_.resolve(future, (*running)->result(),
                                      (*running)->is_sparse() ? Futures::Kind::kSparseProtobuf
                                                              : Futures::Kind::kProtobuf);
                     return true;
                   };
                   return job;
                 });
}

void Service::refuse_unread(const std::string& owner, const ForwardBackwardHead& request,
                            const DataError& why) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(request.model_id);
    if (found == models_.end() || found->second->owner != owner || request.seq_id < 1) return;
    found->second->jobs.refuse(request.seq_id, digest_of("unread", Json(why.what())),
                               serve::answer_to(why));
  }
  sampling_.wake();
}

Json Service::optim_step(const std::string& owner, const Json& body) {
  Members members(body);
  AdamFields adam;
  return enqueue(
      owner, members.text("model_id"), seq_of(members), digest_of("optim_step", body), 0,
      [&] { adam = read_adam(members); },
      [&](const ModelPointer& model, const std::string& future) {
        return Job{.step = [=, this] {
          const double norm = model->adapter->step(adam);
          futures_.resolve(
              future,
              dump_json(
                  Json{{"metrics", {{"grad_norm", norm}, {"learning_rate", adam.learning_rate}}}}));
          return true;
        }};
      });
}

}  // namespace temper::tinker
