#include "temper/generate/sampling/speculation.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "temper/base/error.h"
#include "temper/generate/scheduler.h"

namespace temper::generate {
namespace {

constexpr double kPriorWeight = 4;           // drafted tokens that a prior counts as
constexpr double kKeptByStep = 255 / 256.0;  // of what was learnt

bool is_greedy(const Sequence& sequence) {
  return sequence.prompt->request.options.sampling.temperature == 0;
}

}  // namespace

int64_t read_speculative(const std::string& text, const std::string& key) {
  if (text == "auto") return kAutomatic;
  if (text == "off") return 0;
  int64_t most = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), most);
  check<ConfigError>(error == std::errc() && end == text.data() + text.size() && most >= 0 &&
                         most <= DraftTexts::kMostTokens,
                     key, ": found `", text, "`, expected auto, off or a number of tokens up to ",
                     DraftTexts::kMostTokens);
  return most;
}

double reading_rows(models::CausalLM& model) {
  double quick = 0, all = 0;  // values of matrices
  model.each_parameter([&](const std::string&, nn::Parameter& p) {
    if (p.shape().size() < 2) return;
    double count = 1;
    for (const int64_t size : p.shape()) count *= static_cast<double>(size);
    all += count;
    if (ops::row_of(p.format()).reading_bits <= 16) quick += count;
  });
  return 2 * quick > all ? 4 : 8;
}

double Speculation::expected(const Sequence& sequence, DraftEvidence evidence) const {
  const Outcomes& o = outcomes_[is_greedy(sequence)][evidence.number()];
  return (o.accepted + kPriorWeight * evidence.prior()) / (o.tried + kPriorWeight);
}

void Speculation::plan(std::span<Sequence* const> decoding) {
  if (!on()) return;
  const double rows = static_cast<double>(decoding.size());
  for (Sequence* sequence : decoding)
    find(*sequence, most_ == kAutomatic ? rows / (reading_rows_ + rows) : 0);
  if (most_ == kAutomatic) keep_what_pays(decoding);
  for (const Sequence* sequence : decoding)
    statistics_.drafted_tokens += static_cast<int64_t>(sequence->draft.size());
}

// A draft whose tokens are accepted with this probability at least, each with those before it.
void Speculation::find(Sequence& sequence, double least) const {
  const Prompt& prompt = *sequence.prompt;
  const Completion& c = sequence.completion;
  sequence.draft.clear();
  if (!prompt.texts) return;
  const int64_t room =
      prompt.request.options.max_new_tokens - static_cast<int64_t>(c.tokens.size()) - 1;
  double probability = 1;
  sequence.draft = prompt.texts->draft(
      c.sample, most_ == kAutomatic ? room : std::min(room, most_), [&](const DraftToken& t) {
        probability *= expected(sequence, t.evidence);
        return probability >= least &&
               std::find(prompt.ends.begin(), prompt.ends.end(), t.token) == prompt.ends.end();
      });
}

// The likeliest tokens first, while each adds more to what the pass gives than to what it takes.
void Speculation::keep_what_pays(std::span<Sequence* const> decoding) const {
  struct Row {
    double probability;
    Sequence* sequence;
  };
  std::vector<Row> found;
  for (Sequence* sequence : decoding) {
    double probability = 1;
    for (const DraftToken& t : sequence->draft)
      found.push_back({probability *= expected(*sequence, t.evidence), sequence});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Row& a, const Row& b) { return a.probability > b.probability; });
  double rows = static_cast<double>(decoding.size()), tokens = rows;
  size_t taken = 0;
  for (; taken < found.size() && found[taken].probability * (reading_rows_ + rows) > tokens;
       ++taken, ++rows)
    tokens += found[taken].probability;
  for (size_t i = found.size(); i-- > taken;) found[i].sequence->draft.pop_back();
}

void Speculation::record(const Sequence& sequence, int64_t accepted) {
  statistics_.accepted_tokens += accepted;
  const int64_t tried = std::min(accepted + 1, static_cast<int64_t>(sequence.draft.size()));
  for (int64_t i = 0; i < tried; ++i) {
    const DraftEvidence evidence = sequence.draft[static_cast<size_t>(i)].evidence;
    Outcomes& o = outcomes_[is_greedy(sequence)][evidence.number()];
    ++o.tried;
    o.accepted += i < accepted;
  }
}

void Speculation::end_step() {
  for (auto& outcomes : outcomes_)
    for (Outcomes& o : outcomes) {
      o.tried *= kKeptByStep;
      o.accepted *= kKeptByStep;
    }
}

}  // namespace temper::generate
