#include "temper/rl/episodes/agent_episode.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "temper/rl/episodes/growing_completion.h"

namespace temper::rl {
namespace {

using serve::SessionTurn;
using Path = std::vector<const SessionTurn*>;  // from the beginning of a conversation

// The paths to turns that no other one continues.
std::vector<Path> paths_to_leaves(const std::vector<SessionTurn>& turns) {
  std::vector<bool> continued(turns.size(), false);
  for (const SessionTurn& turn : turns)
    if (turn.done && turn.parent >= 0) continued[static_cast<size_t>(turn.parent)] = true;
  std::vector<Path> paths;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!turns[i].done || continued[i]) continue;
    Path& path = paths.emplace_back();
    for (int64_t t = static_cast<int64_t>(i); t >= 0; t = turns[static_cast<size_t>(t)].parent)
      path.push_back(&turns[static_cast<size_t>(t)]);
    std::reverse(path.begin(), path.end());
  }
  return paths;
}

bool comes_before(const Path& a, const Path& b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](const SessionTurn* x, const SessionTurn* y) {
                                        return std::tie(x->context, x->attempt, x->choice) <
                                               std::tie(y->context, y->attempt, y->choice);
                                      });
}

}  // namespace

std::vector<SampledEpisode> episodes_of(const serve::Session::Record& record,
                                        const Tokenizer& tokenizer) {
  std::vector<Path> paths = paths_to_leaves(record.turns);
  std::sort(paths.begin(), paths.end(), comes_before);
  std::set<const SessionTurn*> trained;
  std::vector<SampledEpisode> episodes;
  for (const Path& path : paths) {
    SampledEpisode& out = episodes.emplace_back();
    out.prompt = path.front()->context;
    GrowingCompletion completion(out.prompt.size());
    for (const SessionTurn* turn : path) {
      if (turn != path.front())
        completion.add_answer(
            {turn->kept,
             {turn->context.begin() + static_cast<ptrdiff_t>(turn->kept), turn->context.end()}});
      completion.add_turn(turn->said, trained.insert(turn).second);
    }
    out.completion = completion.tokens();
    out.episode.text = tokenizer.decode(out.completion.tokens, true);
    out.episode.stopped = path.back()->said.stopped && !record.limited;
    out.episode.turns = std::ssize(path);
  }
  return episodes;
}

}  // namespace temper::rl
