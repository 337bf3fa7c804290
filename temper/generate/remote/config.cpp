#include "temper/generate/remote/config.h"

#include "temper/generate/remote/protocol.h"
#include "temper/http/client.h"

namespace temper {

template <>
inline constexpr std::array enum_names<generate::ServerSection::Sync> = {"disk", "none"};

}  // namespace temper

namespace temper::generate {

void ServerSection::fields(Fields& f) {
  std::string help = "the servers' API";
  for (const auto& known : remote::server_kinds().list())
    help += "; " + known.name + ": " + known.help;
  f.add("kind", kind, help, one_of(remote::server_kinds().names()));
  f.add("urls", urls,
        "addresses of the servers, such as http://127.0.0.1:8000; empty: the run samples itself",
        one_or_list());
  f.add("sync", sync,
        "how servers get the weights after each update: disk (written to weights_dir, which they "
        "load), or none (they keep their own)");
  f.add("weights_dir", weights_dir,
        "directory that trainer and servers see under the same path; null: OUTPUT_DIR/weights");
  f.add("api_key_env", api_key_env,
        "name of the environment variable that holds the servers' API key; null: none");
  f.add(
      "timeout_seconds", timeout_seconds,
      "timeout of a request; a failed one is tried 4 times in all, on another url if there is one",
      above(0));
  f.add("wait_minutes", wait_minutes,
        "minutes to wait for a server that has answered and is gone, such as one that is started "
        "again, or is busy (status 429 or 503); 0: as long as the 4 tries take, 15 seconds",
        at_least(0));
}

std::string ServerSection::api_key() const {
  return http::api_key_in(api_key_env, "rollout.server.api_key_env");
}

std::optional<ServerSection::Unsupported> ServerSection::find_unsupported(
    const RolloutSection& rollout) const {
  return remote::make_protocol(kind, 1)->find_unsupported(rollout, kind);
}

}  // namespace temper::generate
