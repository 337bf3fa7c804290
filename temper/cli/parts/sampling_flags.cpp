#include <iostream>

#include "temper/base/error.h"
#include "temper/cli/parts/options.h"
#include "temper/generate/sampling/suggested_sampling.h"

namespace temper::cli {

void SamplingFlags::add_to(Flags& f) {
  flags_ = &f;
  for (const generate::SamplingOption& option : generate::sampling_options())
    visit_written(option, written, [&](auto& value) {
      f.add(option.flag(), value, option.flag_help ? option.flag_help : option.help, option.rule);
    });
  f.add(
      "--seed", seed,
      "random seed; a choice depends on it, the row's index, the sample's number and the position",
      at_least(0));
  f.then([this] {
    written.sampling.seed = static_cast<uint64_t>(seed);
    options = written.meant([](const generate::SamplingOption& option) { return option.flag(); });
  });
}

void add_cache_bytes(Flags& f, generate::EngineOptions& engine) {
  f.add("--cache-bytes", engine.cache_bytes,
        "maximum memory of the key-value cache; 0: a quarter of the usable memory", at_least(0));
}

void EngineFlags::add_to(Flags& f) {
  f.add("--max-batch", options.max_batch,
        "maximum number of sequences decoded at once; changes the speed, never the result",
        at_least(1));
  add_cache_bytes(f, options);
  f.add("--speculative", speculative,
        "speculative decoding, drafted from the prompt and its other samples: auto (default; as "
        "many tokens as are expected to save time), off, or N: at most N drafted tokens per "
        "sequence and step; changes the speed, never the result");
  f.then(
      [this] { options.speculative = generate::read_speculative(speculative, "--speculative"); });
}

void BatchFlags::add_to(Flags& f) {
  f.add("--num-samples", num_samples, "number of completions per prompt", between(1, 1e6));
  f.add("--beams", beams.beams,
        "beam search with this many beams; prints the best --num-samples of them, best first",
        at_least(1));
  f.add("--length-penalty", beams.length_penalty,
        "with --beams: scores are summed log-probabilities divided by length to this power");
  f.needs("--length-penalty", "--beams");
  engine.add_to(f);
}

void SamplingFlags::follow_suggested(const std::string& model_dir) {
  const auto not_given = [&](const generate::SamplingOption& option) {
    return !flags_->given(option.flag());
  };
  const std::string taken = generate::take_suggested(model_dir, options.sampling, not_given);
  if (!taken.empty())
    std::cerr << "sampling as generation_config.json suggests: " << taken << "; flags win"
              << std::endl;
}

void say_what_is_used(const std::string& model_dir, const generate::SamplingOptions& sampling) {
  generate::SamplingOptions suggested = sampling;
  const std::string says = generate::take_suggested(model_dir, suggested);
  const std::string used = generate::described(sampling);
  if (generate::described(suggested) != used)
    std::cerr << "sampling with " << used << "; generation_config.json suggests " << says
              << std::endl;
}

}  // namespace temper::cli
