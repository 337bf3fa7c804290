// vLLM's server: adapters are loaded beside the model under a name, whole weights by the routes of
// its development mode.
#include "temper/generate/remote/answer.h"
#include "temper/generate/remote/openai.h"

namespace temper::generate::remote {
namespace {

class Vllm final : public OpenAi {
 public:
  using OpenAi::OpenAi;

  Api api() const override { return Api::kVllm; }
  bool takes_images() const override { return false; }
  bool takes_token_rows() const override { return false; }

  void load(http::Client& http, const RemoteWeights& weights,
            const RemoteWeights& before) const override {
    if (weights.adapter)
      return replace_adapter(http, "/v1/load_lora_adapter", "/v1/unload_lora_adapter", weights,
                             before);
    http.post("/pause?mode=wait", "{}");
    http.post("/collective_rpc", dump_json({{"method", "reload_weights"},
                                            {"kwargs", {{"weights_path", weights.path}}}}));
    http.post("/reset_prefix_cache", "{}");
    http.post("/resume", "{}");
  }

 private:
  std::vector<Route> routes(const ServerNeeds& needs) const override {
    if (!needs.loads) return {};
    if (needs.adapter)
      return {{"GET", "/v1/load_lora_adapter",
               ": it is not vLLM, or was started without --enable-lora and "
               "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"}};
    constexpr const char* kHint = ": it is not vLLM, or was started without VLLM_SERVER_DEV_MODE=1";
    return {{"GET", "/pause", kHint}, {"GET", "/collective_rpc", kHint}};
  }
  std::string name_for(const std::string& model, const RemoteWeights& weights) const override {
    return weights.adapter ? weights.version : model;
  }
  // Its fingerprint says nothing of weights.
  void check_weights(const Json&, const RemoteWeights&) const override {}
};

const Registered<MakeProtocol> kVllm(&server_kinds, {"vllm", &make<Vllm>, "vLLM"});

}  // namespace
}  // namespace temper::generate::remote
