#include "temper/generate/remote/protocol.h"

#include <cmath>

#include "temper/base/random.h"
#include "temper/generate/sampling/option_values.h"

namespace temper::generate::remote {

Registry<MakeProtocol>& server_kinds() {
  static Registry<MakeProtocol> table("kind of rollout server");
  return table;
}

std::unique_ptr<Protocol> make_protocol(const std::string& kind, int64_t vocabulary) {
  return server_kinds().find(kind, "rollout.server.kind")(vocabulary);
}

std::optional<Unsupported> Protocol::find_unsupported(const RolloutSection& rollout) const {
  constexpr double kMostPenalty = 2, kMostBias = 100;
  for (const auto& [key, value] : {std::pair{"presence_penalty", rollout.presence_penalty},
                                   std::pair{"frequency_penalty", rollout.frequency_penalty}})
    if (std::abs(value) > kMostPenalty) return outside(key, value, -kMostPenalty, kMostPenalty);
  for (const auto& [id, bias] : read_logit_bias(rollout.logit_bias, "rollout.logit_bias"))
    if (std::abs(bias) > kMostBias) return outside("logit_bias", bias, -kMostBias, kMostBias);
  return std::nullopt;
}

Unsupported Protocol::outside(const char* key, double found, double least, double most) {
  return {temper::str("rollout.", key),
          temper::str("found ", found, ", expected a number from ", least, " to ", most,
                      ", which is what servers (rollout.server) accept")};
}

Unsupported Protocol::no_repeat_ngram_of(const RolloutSection& rollout, const char* kind) {
  return {"rollout.no_repeat_ngram",
          temper::str("found ", rollout.no_repeat_ngram, ", expected 0: rollout.server.kind ", kind,
                      " has no such parameter; leave the key out, or sample without servers")};
}

uint64_t task_seed(const Request& request, int64_t first) {
  const uint64_t begun = static_cast<uint64_t>(request.first_sample + first);
  const uint64_t bits = RandomStream(request.options.sampling.seed, RandomPurpose::kSampling,
                                     static_cast<uint64_t>(request.index))
                            .bits64(begun);
  // A turn that goes on with a completion has numbers of its own.
  if (request.position == 0) return bits >> 33;
  return RandomStream(bits, RandomPurpose::kSampling, begun)
             .bits64(static_cast<uint64_t>(request.position)) >>
         33;
}

}  // namespace temper::generate::remote
