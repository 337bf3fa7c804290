// Shell completion: scripts for bash, zsh and fish that hold what can be typed.
#include <iostream>

#include "temper/base/error.h"
#include "temper/cli/parts/completion_words.h"

namespace temper::cli {
namespace {

std::string join(const Words& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// 'text' for a shell of POSIX; \' inside single quotes is fish's way alone.
std::string shell_quoted(const std::string& text, bool fish = false) {
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' ? (fish ? "\\'" : "'\\''") : c == '\\' && fish ? "\\\\" : std::string(1, c);
  return out + "'";
}

// VERB's line of a shell's `case`.
std::string entry(const std::string& pattern, const Words& words) {
  return temper::str("    ", pattern, ") echo ", shell_quoted(join(words)), " ;;\n");
}

// Functions that bash and zsh share; each prints words.
std::string tables() {
  std::string flags, values, keys;
  Words names;
  for (const Verb& verb : verbs()) {
    names.push_back(verb.name);
    Words words = words_of(verb);
    for (const Flag& flag : flags_to_complete(verb)) {
      words.push_back(flag.name);
      if (!flag.choices.empty())
        values += entry(temper::str("'", verb.name, " ", flag.name, "'"), flag.choices);
    }
    flags += entry(verb.name, words);
    if (!verb.keys) continue;
    Words all, sections;  // "rl.beta=", and "rl." once
    for (const ConfigKey& key : verb.keys()) {
      all.push_back(key.name + "=");
      const size_t dot = key.name.find('.');
      const std::string section =
          dot == std::string::npos ? all.back() : key.name.substr(0, dot + 1);
      if (sections.empty() || sections.back() != section) sections.push_back(section);
      if (!key.choices.empty())
        values += entry(temper::str("'", verb.name, " ", key.name, "'"), key.choices);
    }
    keys +=
        entry(temper::str(verb.name, ".*.*"), all) + entry(temper::str(verb.name, ".*"), sections);
  }
  return temper::str("_temper_verbs() { echo ", shell_quoted(join(names)),
                     "; }\n\n# VERB: its flags and words.\n_temper_words() {\n  case $1 in\n",
                     flags,
                     "  esac\n}\n\n# VERB FLAG or VERB KEY: what its value may be, where that is a "
                     "choice.\n_temper_values() {\n  case \"$1 $2\" in\n",
                     values,
                     "  esac\n}\n\n# VERB PREFIX: the config's sections, and behind a dot its "
                     "keys.\n_temper_keys() {\n  case \"$1.$2\" in\n",
                     keys, "  esac\n}\n");
}

// bash makes words of their own of "=", so that a value stands two words behind its key.
constexpr const char* kBash = R"sh(
_temper() {
  local verb=${COMP_WORDS[1]} cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "$(_temper_verbs) --help --version" -- "$cur"))
    return
  fi
  if [ "$cur" = = ]; then
    cur=
  elif [ "$prev" = = ]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  words=$(_temper_values "$verb" "$prev")
  if [ -z "$words" ]; then
    [ "${COMP_WORDS[COMP_CWORD]}" != = ] && [ "${COMP_WORDS[COMP_CWORD-1]}" != = ] || return
    words=$(_temper_keys "$verb" "$cur")
    [ -z "$words" ] || [ -n "$cur" ] || words="$words $(compgen -f -X '!*.yaml')"
    words="$words $(_temper_words "$verb")"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  case ${COMPREPLY[0]-} in
    *[.=]) [ ${#COMPREPLY[@]} -gt 1 ] || compopt -o nospace 2> /dev/null ;;
  esac
}
complete -o default -F _temper temper
)sh";

constexpr const char* kZsh = R"sh(
_temper() {
  local verb=${words[2]} cur=${words[CURRENT]} prev=${words[CURRENT-1]}
  local -a values
  if (( CURRENT == 2 )); then
    compadd -- ${=$(_temper_verbs)} --help --version
  elif [[ $cur == *=* ]]; then
    values=(${=$(_temper_values $verb ${cur%%=*})})
    compset -P '*='
    if (( $#values )); then compadd -a values; else _files; fi
  else
    values=(${=$(_temper_values $verb $prev)})
    if (( $#values )); then compadd -a values; return; fi
    values=(${=$(_temper_words $verb)})
    compadd -a values
    values=(${=$(_temper_keys $verb $cur)})
    compadd -S '' -a values
    _files
  fi
}
if [ "$funcstack[1]" = _temper ]; then _temper "$@"; else compdef _temper temper; fi
)sh";

void print_fish(std::ostream& out) {
  out << "# Completion of temper for fish: temper completion fish > "
         "~/.config/fish/completions/temper.fish\n"
         "complete -c temper -n __fish_use_subcommand -f\n";
  for (const Verb& verb : verbs()) {
    out << "complete -c temper -n __fish_use_subcommand -f -a " << verb.name << " -d "
        << shell_quoted(verb.help, true) << "\n";
    const std::string begin =
        temper::str("complete -c temper -n '__fish_seen_subcommand_from ", verb.name, "'");
    for (const std::string& word : words_of(verb)) out << begin << " -f -a " << word << "\n";
    for (const Flag& flag : flags_to_complete(verb)) {
      out << begin << " -l " << flag.name.substr(2);
      if (!flag.choices.empty())
        out << " -x -a " << shell_quoted(join(flag.choices), true);
      else if (flag.takes_value())
        out << " -r";
      out << " -d " << shell_quoted(flag.help, true) << "\n";
    }
    if (!verb.keys) continue;
    for (const ConfigKey& key : verb.keys()) {
      Words all{key.name + "="};
      for (const std::string& choice : key.choices) all.push_back(key.name + "=" + choice);
      out << begin << " -a " << shell_quoted(join(all), true) << " -d "
          << shell_quoted(key.help, true) << "\n";
    }
  }
}

}  // namespace

int run_completion(const Arguments& arguments) {
  const std::string shell = arguments.size() == 1 ? arguments[0] : "";
  if (shell == "--help" || shell == "-h")
    std::cout << "usage: temper completion bash|zsh|fish\n"
                 "  bash: eval \"$(temper completion bash)\" in ~/.bashrc\n"
                 "  zsh:  temper completion zsh > \"${fpath[1]}/_temper\"\n"
                 "  fish: temper completion fish > ~/.config/fish/completions/temper.fish\n";
  else if (shell == "bash")
    std::cout << "# Completion of temper for bash: eval \"$(temper completion bash)\"\n"
              << tables() << kBash;
  else if (shell == "zsh")
    std::cout << "#compdef temper\n# Completion of temper for zsh: temper completion zsh > "
                 "\"${fpath[1]}/_temper\"\n"
              << tables() << kZsh;
  else if (shell == "fish")
    print_fish(std::cout);
  else
    throw ConfigError("temper completion: expected one of bash, zsh, fish");
  return 0;
}

}  // namespace temper::cli
