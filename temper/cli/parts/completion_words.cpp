#include "temper/cli/parts/completion_words.h"

#include "temper/rl/algorithms/algorithm.h"

namespace temper::cli {
namespace {

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

void collect(const std::vector<Field>& fields, const std::string& path,
             std::vector<ConfigKey>& keys) {
  for (const Field& field : fields) {
    const std::string name = path + field.name;
    if (!field.children.empty() && !field.is_list)
      collect(field.children, name + ".", keys);
    else
      keys.push_back(
          {name, field.help,
           name == "rl.algorithm" ? algorithm_names(field.write().text) : choices_of(field.type)});
  }
}

}  // namespace

std::vector<ConfigKey> config_keys(const std::vector<Field>& fields) {
  std::vector<ConfigKey> keys;
  collect(fields, "", keys);
  return keys;
}

std::vector<Flag> flags_to_complete(const Verb& verb) {
  const auto named = [](const char* name, const char* help, const char* type) {
    Flag flag;
    flag.name = name, flag.help = help, flag.type = type;
    return flag;
  };
  std::vector<Flag> found{named("--help", "how it is used", "true | false")};
  if (verb.keys) found.push_back(named("--nproc", "ranks on this machine", "integer"));
  for (Flag& flag : flags_of(verb))  // what is no flag is a file, which the shell completes
    if (flag.name.starts_with("--")) found.push_back(std::move(flag));
  return found;
}

Words words_of(const Verb& verb) {
  const std::string name = verb.name;
  if (name == "list") return list_topics();
  if (name == "completion") return {"bash", "zsh", "fish"};
  Words tools;
  for (const Verb& tool : verb.tools) tools.emplace_back(tool.name);
  return tools;
}

}  // namespace temper::cli
