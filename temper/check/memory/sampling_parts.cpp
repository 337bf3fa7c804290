#include "temper/check/memory/sampling_parts.h"

#include <algorithm>
#include <cmath>

#include "temper/generate/cache.h"
#include "temper/ops/backend.h"
#include "temper/ops/weight.h"

namespace temper::checks {

std::vector<const ModelRole*> samplers(const RunShape& run) {
  std::vector<const ModelRole*> roles;
  if (!run.sampling.samples) return roles;
  roles.push_back(&run.policy);
  for (const ModelRole& other : run.others)
    if (other.samples) roles.push_back(&other);
  return roles;
}

ops::CachePage cache_page(const ModelRole& sampler, ops::CacheDtype dtype, int64_t tensor_ranks,
                          at::Device device) {
  std::vector<ops::AttentionSpec> layers;
  for (const CachedHeads& heads : sampler.shape.cached) {
    const bool latent = sampler.shape.latent.has_value();
    ops::AttentionSpec& layer = layers.emplace_back();
    layer.num_heads = sampler.shape.heads / tensor_ranks;
    layer.num_kv_heads = latent ? heads.number : heads.number / tensor_ranks;
    layer.values_in_keys = latent;
    layer.head_dim = heads.dim;
    layer.cache_dtype = dtype;
  }
  return ops::cache_page(layers, device);
}

Parts sampling_parts(const RunShape& run, const ModelRole& sampler, const Ranks& ranks) {
  const ModelShape& m = sampler.shape;
  const SamplingShape& s = run.sampling;
  Parts parts;
  const ops::CachePage kept = cache_page(sampler, s.cache_dtype, ranks.tensor, run.device);
  const int64_t page = kept.tokens;
  const auto pages = [&](int64_t n) { return (n + page - 1) / page; };
  const int64_t at_once = std::min(s.sequences, s.max_batch);
  // Known prefixes stay until their pages are wanted: all that was sampled, within the limit.
  const int64_t wanted = s.prompts * pages(s.prompt_tokens) +
                         std::max(at_once, s.sequences) * pages(s.new_tokens + page - 1);
  // A state of each sequence and of each prompt, and their snapshots.
  const int64_t state = kFloat * m.states / ranks.tensor;
  const int64_t states =
      s.prompts * (2 + s.prompt_tokens / generate::kTokensOfSnapshot) + at_once +
      std::max(at_once, s.sequences) * (s.new_tokens / generate::kTokensOfSnapshot);
  const generate::CacheSize most = generate::cache_size(s.cache_bytes, kept, state);
  parts.emplace_back("cache", state == 0 ? std::min(wanted * kept.bytes, s.cache_bytes)
                                         : std::min(wanted, most.pages) * kept.bytes +
                                               std::min(states, most.states) * state);
  double panels = 0, whole = 0;
  const bool packs = &ops::backend_of(run.device) == &ops::native_backend();
  for (const ShapedTensor& t : m.tensors) {
    if (!t.matrix) continue;
    const double bytes =
        static_cast<double>(divided(t, ranks)) * bytes_of(format_of(sampler, t), t.shape.back());
    whole += bytes;
    const bool embedding_alone = !m.tied && t.is(nn::Role::kEmbedding);
    if (t.absorbed)  // in float32, in whatever format it is kept
      panels += static_cast<double>(kFloat * divided(t, ranks));
    else if (packs && !ops::is_quantized(format_of(sampler, t)) && !embedding_alone)
      panels += bytes;
  }
  parts.emplace_back("packed", rounded(panels));
  parts.emplace_back("logits", kFloat * at_once * m.vocabulary / ranks.tensor);
  if (ranks.fsdp > 1)
    parts.emplace_back("gathered", rounded(whole * static_cast<double>(ranks.fsdp - 1) /
                                           static_cast<double>(ranks.fsdp)));
  return parts;
}

}  // namespace temper::checks
