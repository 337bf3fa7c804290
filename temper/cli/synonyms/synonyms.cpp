#include "temper/cli/synonyms/synonyms.h"

#include <algorithm>
#include <vector>

#include "temper/cli/synonyms/tables.h"

namespace temper::cli {

std::span<const KeySynonym> key_synonyms() {
  static const std::vector<KeySynonym> all = [] {
    std::vector<KeySynonym> rows;
    for (const auto& table :
         {adapter_synonyms(), data_synonyms(), losses_synonyms(), metrics_synonyms(),
          model_synonyms(), optimizer_synonyms(), ranks_synonyms(), rl_synonyms(),
          rollout_synonyms(), train_synonyms()})
      rows.insert(rows.end(), table.begin(), table.end());
    std::ranges::sort(rows, {}, &KeySynonym::name);
    return rows;
  }();
  return all;
}

}  // namespace temper::cli
