// Knowledge distillation (Hinton et al., arXiv 1503.02531, section 2): the student's distribution
// of the next token p learns the teacher's q, both softened by the temperature T. Of supervised
// tokens,
//
//   forward_kl: KL(q || p);   reverse_kl: KL(p || q) (Gu et al., MiniLLM, arXiv 2306.08543);
//   jsd: b KL(q || m) + (1 - b) KL(p || m), m = b q + (1 - b) p (Agarwal et al., arXiv 2306.13649,
//   section 2).
//
// Gradients of softened distributions scale as 1 / T², so each is multiplied by T² (Hinton et al.,
// section 2).
#include <ATen/ATen.h>

#include "temper/distill/alignment.h"
#include "temper/distill/strategy.h"

namespace temper::distill {
namespace {

class Logit : public Strategy {
 public:
  explicit Logit(const DistillSection& section)
      : spec_{.kind = section.divergence,
              .jsd_beta = section.jsd_beta,
              .temperature = section.temperature,
              .top_k = section.top_k} {}
  Comparison compare(const Reading& reading) override;
  double count(const train::ForwardPass& pass) const override {
    return static_cast<double>(pass.num_targets());
  }
  Places places(const train::ForwardPass& pass) const override { return {pass.row_M}; }

 private:
  ops::DivergenceSpec spec_;
};

Strategy::Comparison Logit::compare(const Reading& reading) {
  const train::ForwardPass& pass = reading.pass;
  const ops::TeacherHead student = head_at_targets(reading.student, pass);
  ops::DivergenceSpec spec = spec_;
  spec.student = student.spec;
  const ops::Divergence d =
      reading.teacher
          ? ops::divergence(spec, student.hidden, student.weight,
                            head_at_targets(*reading.teacher, pass), pass.target_M)
          : ops::divergence(spec, student.hidden, student.weight, *reading.top, pass.target_M);
  return {d.value * (spec.temperature * spec.temperature), d.logp};
}

// GOLD (Patiño et al., "Unlocking on-policy distillation for any model family", 2025) or ULD
// (Boizard et al., arXiv 2402.12030) in place of the divergence of logit and on_policy: the teacher
// reads the same text in its own tokens, and spans of tokens that both end at the same place are
// compared (ops/logits/aligned_divergence.h). The mean is over spans.
class CrossTokenizer : public Strategy {
 public:
  explicit CrossTokenizer(const StrategyContext& context);
  Comparison compare(const Reading& reading) override;
  double count(const train::ForwardPass& pass) const override {
    return static_cast<double>(align(pass)->num_spans());
  }
  Places places(const train::ForwardPass& pass) const override;
  std::shared_ptr<const Alignment> align(const train::ForwardPass& pass) const override {
    return bridge_.align(pass);
  }

 private:
  ops::AlignedSpec spec_;
  TokenBridge bridge_;
};

CrossTokenizer::CrossTokenizer(const StrategyContext& context)
    : spec_{.kind = context.config.distill.divergence,
            .jsd_beta = context.config.distill.jsd_beta,
            .temperature = context.config.distill.temperature,
            .student = {},
            .match = nullptr},
      bridge_(
          {context.tokenizer, context.student.vocab_size, context.student.eos_token_ids},
          {context.teacher_tokenizer, context.teacher->vocab_size, context.teacher->eos_token_ids},
          context.config.where("distill.cross_tokenizer")) {
  if (context.config.distill.cross_tokenizer == DistillSection::CrossTokenizer::kGold) {
    spec_.match = bridge_.match();
    return;
  }
  auto none = std::make_shared<ops::VocabularyMatch>();
  none->complete(context.student.vocab_size, context.teacher->vocab_size);
  spec_.match = std::move(none);
}

Strategy::Places CrossTokenizer::places(const train::ForwardPass& pass) const {
  Places places;
  for (const int64_t target : align(pass)->student_spans.last)
    places.token.push_back(pass.row_M.at(static_cast<size_t>(target)));
  return places;
}

Strategy::Comparison CrossTokenizer::compare(const Reading& reading) {
  const Alignment& alignment = *align(reading.pass);
  const ops::TeacherHead student = head_at_targets(reading.student, reading.pass);
  if (alignment.num_spans() == 0) return {at::empty({0}, student.hidden.options()), {}};
  ops::AlignedSpec spec = spec_;
  spec.student = student.spec;
  return {ops::aligned_divergence(spec, student.hidden, student.weight,
                                  {alignment.student_spans, reading.pass.target_M},
                                  head_at_targets(*reading.teacher, alignment.teacher),
                                  {alignment.teacher_spans, alignment.teacher.target_M}),
          {}};
}

}  // namespace

std::unique_ptr<Strategy> make_divergence(const StrategyContext& context) {
  context.require_whole_head();
  if (context.config.distill.cross_tokenizer) return std::make_unique<CrossTokenizer>(context);
  return std::make_unique<Logit>(context.config.distill);
}

std::unique_ptr<Strategy> make_logit(const StrategyContext& context) {
  return make_divergence(context);
}

}  // namespace temper::distill
