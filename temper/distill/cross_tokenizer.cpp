#include "temper/distill/cross_tokenizer.h"

#include <ATen/ATen.h>

namespace temper::distill {

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

double CrossTokenizer::count(const train::ForwardPass& pass) const {
  return static_cast<double>(align(pass)->num_spans());
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

}  // namespace temper::distill
