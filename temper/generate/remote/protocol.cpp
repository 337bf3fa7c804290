#include "temper/generate/remote/protocol.h"

#include <nlohmann/json.hpp>

#include "temper/base/random.h"
#include "temper/generate/sampling/option_values.h"

namespace temper::generate::remote {
namespace {

GrammarMember form_of(grammar::Spec::Kind kind) {
  using Kind = grammar::Spec::Kind;
  return kind == Kind::kJsonSchema ? &GrammarChoice::json_schema
         : kind == Kind::kRegex    ? &GrammarChoice::regex
                                   : &GrammarChoice::grammar;
}

}  // namespace

Registry<MakeProtocol>& server_kinds() {
  static Registry<MakeProtocol> table("kind of rollout server");
  return table;
}

std::unique_ptr<Protocol> make_protocol(const std::string& kind, int64_t vocabulary) {
  return server_kinds().find(kind, "rollout.server.kind")(vocabulary);
}

Json Protocol::parameters(const GenerationOptions& options) const {
  Json out = Json::object();
  for (const SamplingOption& option : sampling_options()) {
    const auto offer = option.at(api());
    if (!offer) continue;
    const std::string& name = offer->name;
    const bool has_default =
        option.at(Api::kGenerationConfig) || option.holds(&GenerationOptions::max_new_tokens);
    const bool told = has_default || option.is_set(options);
    visit(option, options,
          Overloaded{[&](const LogitBias& bias) {
                       for (const auto& [id, added] : bias) out[name][std::to_string(id)] = added;
                     },
                     [&](GrammarMember form) {
                       if (!options.grammar || form != form_of(options.grammar->kind)) return;
                       const size_t dot = name.find('.');
                       Json& holder = dot == name.npos ? out : out[name.substr(0, dot)];
                       holder[name.substr(dot + 1)] = options.grammar->text;
                     },
                     [&](const int64_t& value) {
                       if (told) out[name] = option.to_api(*offer, value);
                     },
                     [&](const auto& value) {
                       if (told) out[name] = value;
                     }});
  }
  return out;
}

std::optional<Unsupported> Protocol::find_unsupported(const RolloutSection& rollout,
                                                      const std::string& kind) const {
  const GenerationOptions options = rollout.options(0);
  std::optional<Unsupported> problem;
  for (const SamplingOption& option : sampling_options()) {
    const auto offer = option.at(api());
    visit_number(option, options, [&](auto value) {
      if (problem ||
          (offer ? allows(offer->rule, static_cast<double>(value)) : !option.is_set(options)))
        return;
      problem = {str("rollout.", option.name), str("found ", value, ", expected ")};
      problem->message +=
          offer ? allowed(offer->rule, false) + ", which is what servers (rollout.server) accept"
                : str("0: rollout.server.kind ", kind,
                      " has no such parameter; leave the key out, or sample without servers");
    });
  }
  return problem;
}

uint64_t task_seed(const Request& request, int64_t first) {
  const uint64_t begun = static_cast<uint64_t>(request.first_sample + first);
  const uint64_t bits = RandomStream(request.options.sampling.seed, RandomPurpose::kSampling,
                                     static_cast<uint64_t>(request.index))
                            .bits64(begun);
  // A turn that goes on with a completion has numbers of its own.
  if (request.position == 0) return bits >> 33;
  return RandomStream(bits, RandomPurpose::kSampling, begun)
             .bits64(static_cast<uint64_t>(request.position)) >>
         33;
}

}  // namespace temper::generate::remote
