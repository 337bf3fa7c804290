#include "temper/plan/rollout_check.h"

#include "temper/base/error.h"
#include "temper/generate/request_check.h"
#include "temper/grammar/grammar.h"

namespace temper::plan {

Finding check_rollout(const generate::RolloutSection& rollout, int64_t seed, int64_t positions,
                      const train::Policy& policy) {
  const generate::GenerationOptions options = rollout.options(seed);
  generate::check_options(options, *policy.model, policy.tokenizer.get());
  if (options.grammar)
    grammar::Compiler(policy.tokenizer, policy.model->vocab_size).compile(*options.grammar);
  if (options.max_new_tokens >= positions)
    return Finding::warn(str("rollout.max_new_tokens ", options.max_new_tokens,
                             ": expected less than the model's max_position_embeddings, ",
                             positions, ", the prompt included"));
  return Finding::pass(str("up to ", options.max_new_tokens, " tokens at temperature ",
                           options.sampling.temperature,
                           options.grammar ? ", in the form of a grammar" : ""));
}

}  // namespace temper::plan
