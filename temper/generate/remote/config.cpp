#include "temper/generate/remote/config.h"

#include <cstdlib>

#include "temper/base/error.h"

namespace temper {

template <>
inline constexpr std::array enum_names<generate::ServerSection::Kind> = {"openai", "vllm",
                                                                         "sglang"};
template <>
inline constexpr std::array enum_names<generate::ServerSection::Sync> = {"disk", "none"};

}  // namespace temper

namespace temper::generate {

void ServerSection::fields(Fields& f) {
  f.add("kind", kind, "the servers' protocol; openai: temper serve and others that return ids");
  f.add("urls", urls,
        "where the servers are, such as http://127.0.0.1:8000; empty: the run samples by itself",
        one_or_list());
  f.add("sync", sync,
        "how they get the weights of each update: disk (written to weights_dir, which they read, "
        "too), or none (they keep their own)");
  f.add("weights_dir", weights_dir,
        "directory that trainer and servers see under this path; null: OUTPUT_DIR/weights");
  f.add("api_key_env", api_key_env, "environment variable with the servers' API key; null: none");
  f.add("timeout_seconds", timeout_seconds,
        "of one request, which is tried 4 times, on another url where there is one", above(0));
}

std::string ServerSection::api_key() const {
  if (!api_key_env) return {};
  const char* const key = std::getenv(api_key_env->c_str());
  check<ConfigError>(key && *key, "rollout.server.api_key_env: the environment has no ",
                     *api_key_env);
  return key;
}

}  // namespace temper::generate
