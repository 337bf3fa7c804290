#include "temper/cli/episodes.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/cli/output.h"
#include "temper/cli/progress.h"
#include "temper/rl/episode_sampler.h"
#include "temper/rl/rollout_lines.h"
#include "temper/text/chat_template.h"

namespace temper::cli {

void EnvironmentFlags::add_to(CLI::App& app) {
  app.add_option(
      "--environment", environment,
      "a YAML file with the config section `environment`: each prompt starts a multi-turn "
      "episode; --max-new-tokens applies to the whole episode");
  app.add_option(
      "--tools", tools,
      "a YAML or JSON file with a list of {name, description, parameters, command}: "
      "tools that the model may call; beside --environment only where its file has none");
}

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
    read_fields(map, "environment", fields);
  }
  check<ConfigError>(
      tools.empty() || !section.tools.empty(), tools,
      ": found no tool, expected a list of {name, description, parameters, command}");
  check<ConfigError>(section.any(), environment, ": expected a name, a command or tools");
  const std::string problem = env::find_problem(section);
  const bool of_tools = !tools.empty() && problem.starts_with("environment.tools");
  check<ConfigError>(problem.empty(), of_tools ? tools : environment, ": ", problem);
  return section;
}

namespace {

OutputRow output_row(size_t index, rl::SampledEpisode sampled) {
  rl::EpisodeGroup group{.id = static_cast<int64_t>(index)};
  add_episode(group, sampled.prompt, std::move(sampled.episode), sampled.completion);
  OutputRow row{{"index", index}};
  row.update(OutputRow::parse(to_line(group, group.episodes[0])));
  row.erase("advantage");
  row["tokens"] = row["completion_tokens"];
  return row;
}

}  // namespace

int64_t write_episodes(models::CausalLM& model, const ModelFlags& model_flags,
                       const EnvironmentFlags& flags, const SamplingFlags& sampling,
                       const BatchFlags& batch, std::shared_ptr<const Tokenizer> tokenizer,
                       const std::vector<data::PromptRow>& rows, const std::vector<int>& adapters,
                       OutputFile& out) {
  data::PromptFormat format;
  format.tokenizer = tokenizer;
  if (tokenizer && ChatTemplate::exists(model_flags.model))
    format.chat = std::make_shared<ChatTemplate>(ChatTemplate::load(model_flags.model));
  format.max_length = INT64_MAX;
  format.vocabulary = model.vocab_size;
  generate::Engine engine(model, batch.engine, tokenizer);
  rl::EpisodeSampler sampler(flags.section(), format, sampling.options, model.eos_token_ids);
  if (!sampler.shows_tools()) std::cerr << "warning: " << rl::kHiddenTools << std::endl;
  std::vector<rl::EpisodeSampler::Ask> asks;
  for (size_t i = 0; i < rows.size(); ++i)
    asks.push_back({static_cast<int64_t>(i), &rows[i], adapters[i]});
  std::vector<std::vector<rl::SampledEpisode>> ended(rows.size());
  size_t next = 0;
  catch_interrupts();
  Progress progress("sampled", static_cast<int64_t>(rows.size()) * batch.num_samples);
  const auto done = [&](size_t ask, std::vector<rl::SampledEpisode> episodes) {
    progress.advance(static_cast<int64_t>(episodes.size()), 0);
    ended[ask] = std::move(episodes);
    for (; next < ended.size() && !ended[next].empty(); ended[next++].clear())
      for (rl::SampledEpisode& episode : ended[next])
        if (!episode.dropped) out.row(output_row(next, std::move(episode)));
  };
  sampler.run(engine, asks, batch.num_samples, done, [] { return interrupted(); });
  if (interrupted()) throw Interrupted();
  if (const int64_t failures = sampler.counts().failures(); failures > 0)
    std::cerr << "warning: the environment failed " << failures
              << " times; the first: " << sampler.first_failure() << std::endl;
  return engine.statistics().new_tokens;
}

}  // namespace temper::cli
