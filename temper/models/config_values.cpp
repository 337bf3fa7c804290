#include "temper/models/config_values.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper::models {
namespace {

// Names that config classes of transformers have for it.
constexpr const char* kDropouts[] = {"attention_dropout", "residual_dropout", "resid_pdrop",
                                     "embd_pdrop",        "attn_pdrop",       "hidden_dropout",
                                     "classifier_dropout"};

}  // namespace

double number_above(const HfConfig& config, std::string_view key, double least, double fallback) {
  const double value = config.number(key, fallback);
  if (!(value > least)) config.fail(key, str("found ", value, ", expected a number above ", least));
  return value;
}

double number_from(const HfConfig& config, std::string_view key, double least, double fallback) {
  const double value = config.number(key, fallback);
  if (!(value >= least))
    config.fail(key, str("found ", value, ", expected a number of at least ", least));
  return value;
}

double soft_cap(const HfConfig& config, const char* key, double usual) {
  if (!config.has(key)) return config.is_null(key) ? 0 : usual;
  return number_above(config, key, 0, usual);
}

HfConfig filled(const HfConfig& config, const char* key, Json value) {
  if (config.has(key)) return config;
  Json json = config.json();
  json[key] = std::move(value);
  json["model_type"] = config.model_type();
  return HfConfig::parse(std::move(json), config.where());
}

void check_causal(const HfConfig& config) {
  if (!config.boolean("is_causal", true))
    config.fail("is_causal", "found false: tokens that attend to later ones are not supported");
}

std::string unapplied_dropout(const HfConfig& config) {
  std::string found;
  for (const char* key : kDropouts)
    if (const double share = config.number(key, 0); share > 0)
      found += str(found.empty() ? "" : ", ", "`", key, "` ", share);
  if (found.empty()) return "";
  return str(
      config.where(), ": ", found,
      " is not applied: the model trains without dropout (adapter.dropout applies to adapters "
      "only)");
}

}  // namespace temper::models
