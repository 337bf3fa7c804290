#include "temper/generate/remote/config.h"

#include <cmath>
#include <cstdlib>

#include "temper/base/error.h"
#include "temper/generate/option_values.h"

namespace temper {

template <>
inline constexpr std::array enum_names<generate::ServerSection::Kind> = {"openai", "vllm",
                                                                         "sglang"};
template <>
inline constexpr std::array enum_names<generate::ServerSection::Sync> = {"disk", "none"};

}  // namespace temper

namespace temper::generate {

void ServerSection::fields(Fields& f) {
  f.add("kind", kind, "the servers' API; openai: temper serve and others that return token ids");
  f.add("urls", urls,
        "addresses of the servers, such as http://127.0.0.1:8000; empty: the run samples itself",
        one_or_list());
  f.add("sync", sync,
        "how servers get the weights after each update: disk (written to weights_dir, which they "
        "load), or none (they keep their own)");
  f.add("weights_dir", weights_dir,
        "directory that trainer and servers see under the same path; null: OUTPUT_DIR/weights");
  f.add("api_key_env", api_key_env,
        "name of the environment variable that holds the servers' API key; null: none");
  f.add(
      "timeout_seconds", timeout_seconds,
      "timeout of a request; a failed one is tried 4 times in all, on another url if there is one",
      above(0));
  f.add("wait_minutes", wait_minutes,
        "minutes to wait for a server that has answered and is gone, such as one that is started "
        "again, or is busy (status 429 or 503); 0: as long as the 4 tries take, 15 seconds",
        at_least(0));
}

std::string ServerSection::api_key() const {
  if (!api_key_env) return {};
  const char* const key = std::getenv(api_key_env->c_str());
  check<ConfigError>(key && *key, "rollout.server.api_key_env: the environment has no ",
                     *api_key_env);
  return key;
}

// OpenAI's ranges hold for all three. temper serve alone bans repeated n-grams.
std::optional<ServerSection::Unsupported> ServerSection::find_unsupported(
    const RolloutSection& rollout) const {
  constexpr double kMostPenalty = 2, kMostBias = 100;
  const auto outside = [](const char* key, double found, double least, double most) {
    return Unsupported{str("rollout.", key),
                       str("found ", found, ", expected a number from ", least, " to ", most,
                           ", which is what servers (rollout.server) accept")};
  };
  for (const auto& [key, value] : {std::pair{"presence_penalty", rollout.presence_penalty},
                                   std::pair{"frequency_penalty", rollout.frequency_penalty}})
    if (std::abs(value) > kMostPenalty) return outside(key, value, -kMostPenalty, kMostPenalty);
  for (const auto& [id, bias] : read_logit_bias(rollout.logit_bias, "rollout.logit_bias"))
    if (std::abs(bias) > kMostBias) return outside("logit_bias", bias, -kMostBias, kMostBias);
  if (kind == Kind::kSglang && rollout.repetition_penalty > kMostPenalty)
    return outside("repetition_penalty", rollout.repetition_penalty, 0, kMostPenalty);
  if (kind != Kind::kOpenai && rollout.no_repeat_ngram > 0)
    return Unsupported{"rollout.no_repeat_ngram",
                       str("found ", rollout.no_repeat_ngram, ", expected 0: rollout.server.kind ",
                           enum_names<Kind>[static_cast<size_t>(kind)],
                           " has no such parameter; leave the key out, or sample without servers")};
  return std::nullopt;
}

}  // namespace temper::generate
