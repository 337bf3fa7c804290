#include "temper/generate/config.h"

namespace temper::generate {

void RolloutSection::fields(Fields& f) {
  f.add("max_new_tokens", max_new_tokens, "maximum number of tokens of a completion", at_least(1));
  f.add("temperature", temperature,
        "sampling temperature; the policy's, old and reference log-probabilities are taken at it, "
        "too",
        at_least(0));
  f.add("top_k", top_k, "sample among so many likeliest tokens; 0: all", at_least(0));
  f.add("top_p", top_p, "sample among the likeliest tokens that have this mass together",
        Rule{.min = 0, .max = 1, .above_min = true});
  f.add("min_p", min_p, "leave out tokens below this share of the likeliest one's probability",
        between(0, 1));
  f.add("repetition_penalty", repetition_penalty,
        "divides the logits of tokens that occurred; 1: none", above(0));
  f.add("stop", stop, "texts that end a completion and are cut from it", one_or_list());
  f.add("ignore_eos", ignore_eos, "go on after an end token, to max_new_tokens");
  f.add(
      "cache_bytes", cache_bytes,
      "maximum memory for keys and values; null: the ranks of a machine share a quarter of what is "
      "usable",
      at_least(1));
}

GenerationOptions RolloutSection::options(int64_t seed) const {
  GenerationOptions o;
  o.sampling = {.temperature = temperature,
                .top_k = top_k,
                .top_p = top_p,
                .min_p = min_p,
                .repetition_penalty = repetition_penalty,
                .seed = static_cast<uint64_t>(seed)};
  o.max_new_tokens = max_new_tokens;
  o.ignore_eos = ignore_eos;
  o.stop = stop;
  return o;
}

}  // namespace temper::generate
