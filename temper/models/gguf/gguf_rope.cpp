#include <cmath>

#include "temper/models/decoder.h"
#include "temper/models/gguf/gguf_form.h"

namespace temper::models {
namespace {

using GgufRotary = nn::RotaryConfig;

const char* gguf_rope_key(const HfConfig& source) {
  return source.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
}

void set_rope_factors(const HfConfig& source, const GgufArchitecture& architecture,
                      const DecoderConfig& c, GgufForm& form) {
  if (!architecture.rope_factors) form.refuse(source, gguf_rope_key(source), "`rope_type` llama3");
  GgufRotary plain;
  plain.theta = c.rotary.theta;
  const nn::Rotary scaled(c.rotary, c.attention.head_dim), without(plain, c.attention.head_dim);
  for (size_t i = 0; i < without.inverse_frequency().size(); ++i)
    form.rope_factors.push_back(without.inverse_frequency()[i] / scaled.inverse_frequency()[i]);
}

// llama.cpp's factor of cosines and sines is the usual one times `attn_factor`.
void add_yarn(const HfConfig& source, const GgufArchitecture& architecture, const DecoderConfig& c,
              GgufForm& form) {
  const GgufRotary& rope = c.rotary;
  if (c.local_rotary && !architecture.plain_in_window)
    form.refuse(source, gguf_rope_key(source), "`rope_type` yarn");
  form.set("rope.scaling.type", std::string("yarn"));
  form.set_real("rope.scaling.factor", rope.factor);
  form.set_number("rope.scaling.original_context_length",
                  std::llround(rope.original_max_position_embeddings));
  if (rope.beta_fast != 32) form.set_real("rope.scaling.yarn_beta_fast", rope.beta_fast);
  if (rope.beta_slow != 1) form.set_real("rope.scaling.yarn_beta_slow", rope.beta_slow);
  const double factor = rope.attention_factor / nn::yarn_attention_factor(rope.factor);
  if (std::abs(factor - 1) > 1e-6) form.set_real("rope.scaling.attn_factor", factor);
  if (!rope.truncate)
    form.notes.push_back(
        "llama.cpp begins and ends yarn's blend at whole dimensions, whatever `truncate` says: its "
        "log-probabilities differ");
}

// llama.cpp takes the long factors for every context beyond the original length, which Temper
// refuses.
void add_longrope(const HfConfig& source, const GgufArchitecture& architecture,
                  const DecoderConfig& c, GgufForm& form) {
  const std::optional<HfConfig> section = source.rope_section();
  if (!architecture.longrope || !section)
    form.refuse(source, gguf_rope_key(source), "`rope_type` longrope");
  const std::vector<double> longer = section->numbers("long_factor");
  const std::vector<double>& shorter = c.rotary.short_factor;
  if (longer.size() != shorter.size())
    section->fail("long_factor", str("expected ", shorter.size(), " numbers"));
  form.short_factors.assign(shorter.begin(), shorter.end());
  form.long_factors.assign(longer.begin(), longer.end());
  form.set_number("rope.scaling.original_context_length",
                  std::llround(c.rotary.original_max_position_embeddings));
  form.set_real("rope.scaling.attn_factor", c.rotary.attention_factor);
}

}  // namespace

void add_gguf_rope(const HfConfig& source, const GgufArchitecture& architecture,
                   const DecoderConfig& c, GgufForm& form) {
  const GgufRotary& rope = c.rotary;
  const int64_t whole = c.rotary_dim > 0 ? c.rotary_dim : c.attention.head_dim;
  const double rotated = static_cast<double>(whole) * rope.share;
  if (static_cast<int64_t>(rotated) % 2 != 0 && rope.kind != GgufRotary::Kind::kProportional)
    form.refuse(source, "partial_rotary_factor",
                str("an odd number of rotated features, ", static_cast<int64_t>(rotated)));
  form.set_number("rope.dimension_count", static_cast<int64_t>(rotated));
  form.set_real("rope.freq_base", rope.theta);
  if (c.local_rotary) {
    if (c.local_rotary->kind != GgufRotary::Kind::kDefault)
      form.refuse(source, "rope_parameters", "scaled positions in layers with a window");
    if (architecture.plain_in_window && c.local_rotary->theta != rope.theta)
      form.refuse(source, "rope_parameters", "another `rope_theta` in layers with a window");
    form.set_real("rope.freq_base_swa", c.local_rotary->theta);
  }
  switch (rope.kind) {
    case GgufRotary::Kind::kDefault:
    case GgufRotary::Kind::kDynamic:  // up to max_position_embeddings the same
      return;
    case GgufRotary::Kind::kLinear:
      form.set("rope.scaling.type", std::string("linear"));
      return form.set_real("rope.scaling.factor", rope.factor);
    case GgufRotary::Kind::kLlama3:
      return set_rope_factors(source, architecture, c, form);
    case GgufRotary::Kind::kYarn:
      return add_yarn(source, architecture, c, form);
    case GgufRotary::Kind::kLongRope:
      return add_longrope(source, architecture, c, form);
    case GgufRotary::Kind::kProportional:
      if (architecture.proportional) return;
      form.refuse(source, gguf_rope_key(source), "`rope_type` proportional");
  }
}

}  // namespace temper::models
