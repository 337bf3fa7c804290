// OpenAI's /v1/completions with token ids, as temper serve and vLLM have it. `images` beside the
// prompt is temper serve's: the images that its ids stand for, as data: URIs.
#pragma once

#include "temper/generate/remote/protocol.h"

namespace temper::generate::remote {

class OpenAi : public Protocol {
 public:
  using Protocol::Protocol;
  int64_t most_samples() const override { return 1024; }
  bool takes_images() const override { return true; }
  bool takes_token_rows() const override { return true; }
  std::vector<RemoteSample> sample(http::Client& http, const std::string& model,
                                   const SampleTask& task,
                                   const RemoteWeights& weights) const override;
  void load(http::Client& http, const RemoteWeights& weights,
            const RemoteWeights& before) const override;

 protected:
  std::vector<Route> routes(const ServerNeeds& needs) const override;
  // The `model` of a request that is to be sampled with these weights.
  virtual std::string name_for(const std::string& model, const RemoteWeights& weights) const;
  // Throws WrongWeights for an answer that was sampled with others.
  virtual void check_weights(const Json& answer, const RemoteWeights& weights) const;
};

}  // namespace temper::generate::remote
