#include "temper/cli/parts/completion_words.h"

#include "temper/rewards/reward.h"
#include "temper/rl/algorithms/algorithm.h"

namespace temper::cli {
namespace {

// "adamw | sgd", "true | false or null": a field's type where it is a choice.
Words type_choices(std::string type) {
  Words choices;
  if (type.find(" | ") == std::string::npos || type.find("list") != std::string::npos)
    return choices;
  const bool nullable = type.ends_with(" or null");
  if (nullable) type.resize(type.size() - std::string_view(" or null").size());
  for (size_t start = 0; start != std::string::npos;) {
    const size_t end = type.find(" | ", start);
    choices.push_back(type.substr(start, end - start));
    start = end == std::string::npos ? end : end + 3;
  }
  if (nullable) choices.push_back("null");
  return choices;
}

// The algorithms of the verb whose default algorithm is `standard`: those with a critic, or those
// without.
Words algorithm_names(const std::string& standard) {
  const auto has_critic = [](const std::string& name) {
    return rl::algorithms().find(name)()->needs().critic;
  };
  Words names;
  for (const auto& entry : rl::algorithms().list())
    if (has_critic(entry.name) == has_critic(standard)) names.push_back(entry.name);
  return names;
}

Words reward_names() {
  Words names;
  for (const rewards::RewardEntry& reward : rewards::registry().list())
    names.push_back(reward.name);
  return names;
}

void collect(const std::vector<Field>& fields, const std::string& path,
             std::vector<ConfigKey>& keys) {
  for (const Field& field : fields) {
    const std::string name = path + field.name;
    if (!field.children.empty() && !field.is_list)
      collect(field.children, name + ".", keys);
    else
      keys.push_back({name, field.help,
                      name == "rl.algorithm" ? algorithm_names(field.write().text)
                                             : type_choices(field.type)});
  }
}

}  // namespace

std::vector<ConfigKey> config_keys(const std::vector<Field>& fields) {
  std::vector<ConfigKey> keys;
  collect(fields, "", keys);
  return keys;
}

std::vector<Flag> flags_to_complete(const Verb& verb) {
  if (verb.keys)
    return {{"--help", "every key with its type and default", {}, false},
            {"--nproc", "ranks on this machine", {}, true}};
  std::vector<Flag> found = flags_of(verb);
  // Files and directories, which the shell completes by itself.
  std::erase_if(found, [](const Flag& flag) { return !flag.name.starts_with("--"); });
  if (found.empty()) found.push_back({"--help", "how it is used", {}, false});
  for (Flag& flag : found) {
    if (flag.name == "--reward") flag.choices = reward_names();
  }
  return found;
}

Words words_of(const Verb& verb) {
  const std::string name = verb.name;
  if (name == "list") return list_topics();
  return name == "completion" ? Words{"bash", "zsh", "fish"} : tools_of(verb);
}

}  // namespace temper::cli
