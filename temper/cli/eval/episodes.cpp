#include "temper/cli/eval/episodes.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/cli/parts/output.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/work.h"
#include "temper/rl/rollout/rollout_lines.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/unicode.h"

namespace temper::cli {

void EnvironmentFlags::add_to(Flags& f) {
  f.add("--environment", environment,
        "a YAML file with the config section `environment`: each prompt starts a multi-turn "
        "episode, and --max-new-tokens limits the whole episode. `rewards` in the file is ignored");
  f.add("--tools", tools,
        "a YAML or JSON file with a list of {name, description, parameters, command}, or of "
        "OpenAI's {type: function, function: {..}} with a command: tools that the model may call; "
        "beside --environment only where its file has none");
}

namespace {

// Rewrites {type: function, function: {name, ..}} and {type: function, name, ..}, as OpenAI's APIs
// have tools, to the config's form: such a file needs a `command` added to each, inside `function`
// or beside it.
void unwrap_functions(YamlNode& tools, const std::string& file) {
  for (YamlNode& tool : tools.items) {
    const YamlNode* function = tool.find("function");
    const YamlNode* type = tool.find("type");
    if (!type && !function) continue;
    check<ConfigError>(!type || type->text == "function", file,
                       ": a tool of a type that is not supported, expected type: function");
    check<ConfigError>(!function || function->kind == YamlNode::Kind::kMap, file,
                       ": `function` is ", function ? function->found() : "", ", expected a map");
    YamlNode unwrapped = function ? *function : YamlNode::map();
    std::erase_if(unwrapped.entries, [](const auto& entry) { return entry.key == "strict"; });
    for (YamlNode::Entry& entry : tool.entries) {
      if (entry.key == "type" || entry.key == "function" || entry.key == "strict") continue;
      check<ConfigError>(!unwrapped.find(entry.key), file, ": a tool has `", entry.key,
                         "` in `function` and beside it");
      unwrapped.entries.push_back(std::move(entry));
    }
    tool = std::move(unwrapped);
  }
}

}  // namespace

env::EnvironmentSection EnvironmentFlags::section() const {
  env::EnvironmentSection section;
  const std::vector<Field> fields = Fields::of(section);
  if (!environment.empty()) {
    const YamlNode file = parse_yaml(read_file(environment), environment);
    const YamlNode* inner = file.find("environment");
    read_fields(inner ? *inner : file, "environment", fields);
  }
  if (!tools.empty()) {
    check<ConfigError>(section.tools.empty(), "--tools ", tools, ": ", environment,
                       " has tools of its own; write all of them in one of the two files");
    YamlNode map = YamlNode::map();
    map.entries.push_back({.key = "tools",
                           .origin = {},
                           .value = parse_yaml(read_file(tools), tools),
                           .comment = {}});
    unwrap_functions(map.entries.back().value, tools);
    read_fields(map, "environment", fields);
  }
  check<ConfigError>(
      tools.empty() || !section.tools.empty(), tools,
      ": found no tool, expected a list of {name, description, parameters, command}");
  check<ConfigError>(section.any(), environment, ": expected a name, a command, openai or tools");
  const std::string problem = env::find_problem(section);
  const bool of_tools = !tools.empty() && problem.starts_with("environment.tools");
  check<ConfigError>(problem.empty(), of_tools ? tools : environment, ": ", problem);
  return section;
}

void EnvironmentFlags::check_no_beams(const BatchFlags& batch) const {
  check<ConfigError>(!any() || batch.beams.beams <= 1,
                     "--beams: cannot be combined with --environment or --tools");
}

namespace {

constexpr const char* kHiddenTools =
    "the chat template shows the model no tools: it does not see those of the episodes; put a "
    "template that shows them into the model directory as chat_template.jinja";

OutputRow output_row(size_t index, rl::SampledEpisode sampled, bool rewarded) {
  rl::EpisodeGroup group{.id = static_cast<int64_t>(index)};
  add_episode(group, sampled.prompt, std::move(sampled.episode), sampled.completion);
  OutputRow row{{"index", index}};
  row.update(OutputRow::parse(to_line(group, group.episodes[0])));
  row.erase("advantage");
  if (!rewarded)
    for (const char* key : {"reward", "rewards"}) row.erase(key);
  row["tokens"] = row["completion_tokens"];
  return row;
}

// The rows whose episodes one chat template writes.
struct Template {
  std::shared_ptr<const ChatTemplate> chat;
  std::vector<rl::EpisodeSampler::Ask> asks;  // keys are the rows' numbers
};

// Rows of adapters with a template of their own stand by themselves.
std::vector<Template> by_template(const ModelFlags& flags, bool has_text,
                                  const std::vector<data::PromptRow>& rows,
                                  const std::vector<int>& adapters) {
  ChatTemplates templates(flags);
  std::vector<Template> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto chat = has_text ? templates.of(adapters[i]) : nullptr;
    auto same = std::ranges::find(out, chat, &Template::chat);
    if (same == out.end()) same = out.insert(out.end(), {chat, {}});
    same->asks.push_back({static_cast<int64_t>(i), &rows[i], adapters[i]});
  }
  return out;
}

}  // namespace

EpisodeCounts sample_episodes(
    const EpisodeInputs& in,
    const std::function<void(size_t row, std::vector<rl::SampledEpisode>)>& done) {
  for (const data::PromptRow& row : in.rows)
    check<DataError>(row.images.empty(), row.where,
                     ": the row has images, which episodes with an environment do not take");
  data::PromptFormat format;
  format.tokenizer = in.tokenizer;
  format.max_length = INT64_MAX;
  format.vocabulary = in.model.vocab_size;
  generate::Engine engine(in.model, in.batch.engine.options, in.tokenizer);
  const std::vector<Template> templates =
      by_template(in.model_flags, in.tokenizer != nullptr, in.rows, in.adapters);
  const int64_t samples = in.batch.num_samples;
  std::vector<std::vector<rl::SampledEpisode>> ended(in.rows.size());
  size_t next = 0;
  catch_interrupts();
  Progress progress("sampled", static_cast<int64_t>(in.rows.size()) * samples);
  EpisodeCounts counts;
  for (const auto& [chat, asks] : templates) {
    format.chat = chat;
    const std::unique_ptr<rl::EpisodeSampler> driver = rl::make_episode_sampler(
        in.environment, format, in.sampling.options, in.model.eos_token_ids, false);
    if (!driver->shows_tools()) std::cerr << "warning: " << kHiddenTools << std::endl;
    driver->run(
        engine, asks, samples,
        [&](size_t ask, std::vector<rl::SampledEpisode> episodes) {
          progress.advance(samples, 0);
          ended[static_cast<size_t>(asks[ask].key)] = std::move(episodes);
          for (; next < ended.size() && !ended[next].empty(); ++next)
            done(next, std::exchange(ended[next], {}));
        },
        [] { return interrupted(); });
    if (interrupted()) throw Interrupted();
    if (counts.failures == 0) counts.first_failure = driver->first_failure();
    counts.failures += driver->counts().failures();
  }
  if (counts.failures > 0)
    std::cerr << "warning: the environment failed " << counts.failures
              << " times; the first: " << printable(counts.first_failure) << std::endl;
  counts.new_tokens = engine.statistics().new_tokens;
  return counts;
}

int64_t write_episodes(const EpisodeInputs& inputs, OutputFile& out) {
  const bool always_rewards = !inputs.environment.name.empty();  // a built-in one
  const EpisodeCounts counts =
      sample_episodes(inputs, [&](size_t row, std::vector<rl::SampledEpisode> episodes) {
        for (rl::SampledEpisode& episode : episodes)
          if (!episode.dropped) {
            const bool rewarded = always_rewards || episode.rewarded;
            out.row(output_row(row, std::move(episode), rewarded));
          }
      });
  return counts.new_tokens;
}

}  // namespace temper::cli
