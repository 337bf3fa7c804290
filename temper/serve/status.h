// The bodies of GET /v1/models and GET /metrics.
#pragma once

#include <string>

#include "temper/serve/sampler_loop.h"
#include "temper/serve/server.h"

namespace temper::serve {

// OpenAI's object of a model, and its list of models.
std::string model_text(const ServerOptions& options, const ServedModel& model);
std::string models_text(const ServerOptions& options);
// Prometheus' text format.
std::string metrics_text(const SamplerLoop::Counts& counts);

}  // namespace temper::serve
