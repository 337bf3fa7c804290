#!/usr/bin/env bash
# What a shell offers after the tab key, for bash as it runs, for zsh and fish where they are installed. $1: the
# program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
touch run.yaml
eval "$("$temper" completion bash)"

# offered WORD...: what bash offers for the last word, sorted, in one line. "=" is a word of its own, as in readline.
offered() {
  COMP_WORDS=(temper "$@")
  COMP_CWORD=$#
  _temper
  printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' '
}
# expect 'what is offered' WORD...
expect() {
  local found
  found=$(offered "${@:2}")
  [ "$found" = "$1" ] || fail "temper ${*:2}: offered '$found', expected '$1'"
}
expect 'generate ' ge
expect 'score serve sft sweep ' s
expect '--help --nproc ' sft --
expect '--device --dtype ' generate --d
expect 'bfloat16 float32 ' score --dtype ''
expect 'bfloat16 float16 float32 ' export --dtype ''
expect 'gguf hf ' export --format ''
expect 'cpu cuda ' generate --device = c
expect 'gsm8k ' eval --reward gs
expect 'resume= rewards= rl. roles. rollout. ' grpo r
expect 'rl.beta= ' grpo rl.be
all=$("$temper" list algorithms | awk '{ print $1 }' | grep -vx ppo | sort)
with_d=$(grep '^d' <<< "$all" | tr '\n' ' ')
expect "$with_d" grpo rl.algorithm = d
expect "$(tr '\n' ' ' <<< "$all")" grpo rl.algorithm =
expect 'ppo ' ppo rl.algorithm =
expect 'ppo. ' ppo pp
expect 'false true ' sft data.shuffle =
expect ' ' sft data.train = runs
expect ' ' generate rl.be
expect 'algorithms ' list a
expect '--help bash fish zsh ' completion ''
[[ $(offered sft '') == *'run.yaml '* ]] || fail "a config file is not offered"

# Every verb, every flag that a --help shows, every key: offered; and every key that is offered is one.
for verb in $("$temper" --help | awk '/^  [a-z]/ && !/temper/ { print $1 }'); do
  [[ " $(offered '') " == *" $verb "* ]] || fail "the verb $verb is not offered"
  while read -r flag; do
    [[ " $(offered $verb "$flag") " == *" $flag "* ]] || fail "$verb $flag is not offered"
  done < <("$temper" $verb --help | grep -oE '^ +(-h,)?--[a-z-]+' | grep -oE -- '--[a-z-]+')
done
for verb in sft grpo ppo; do
  diff <("$temper" $verb --help | grep -oE '^[a-z_0-9.]+: ' | grep -v ^usage | tr -d ': ' | sort) <(_temper_keys $verb . | tr ' ' '\n' | tr -d = | sort) || fail "$verb: other keys than --help shows"
done

if command -v zsh > /dev/null; then
  "$temper" completion zsh > _temper
  zsh -n _temper || fail "zsh cannot read the script"
fi
if command -v fish > /dev/null; then
  "$temper" completion fish > temper.fish
  found=$(fish -c "source temper.fish; complete -C 'temper grpo rl.algorithm=d'" | cut -f1 | sort | tr '\n' ' ')
  [ "$found" = "$(sed 's/[^ ]* */rl.algorithm=&/g' <<< "$with_d")" ] || fail "fish offers '$found'"
  found=$(fish -c "source temper.fish; complete -C 'temper generate --device '" | cut -f1 | sort | tr '\n' ' ')
  [ "$found" = 'auto cpu cuda ' ] || fail "fish offers '$found'"
fi
status=0; message=$("$temper" completion tcsh 2>&1) || status=$?
[ $status = 2 ] && [[ $message == *'bash, zsh, fish'* ]] || fail "tcsh: $status $message"
exit $bad
