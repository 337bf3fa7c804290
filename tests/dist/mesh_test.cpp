// Collectives and meshes of ranks that are processes, forked before anything has started a thread.
#include "temper/dist/mesh.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>

#include "temper/base/error.h"
#include "temper/dist/agreement.h"
#include "temper/dist/environment.h"
#include "tests/dist/port.h"

using namespace temper;
using namespace temper::dist;

namespace {

// Runs the work on so many ranks; their exit statuses. Work gives "" or what is wrong.
std::vector<int> on_ranks(int size, const std::function<std::string(int rank)>& work) {
  const uint16_t port = free_port();
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    ::setenv("TEMPER_TIMEOUT_SECONDS", "60", 1);
    std::string problem;
    try {
      problem = work(rank);
    } catch (const std::exception& e) {
      problem = e.what();
    }
    if (!problem.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, problem.c_str());
    ::_exit(problem.empty() ? 0 : 1);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return statuses;
}

// What a rank adds: sums of these depend on their order.
float term(int rank, int64_t i) {
  const float large = 1e8f + static_cast<float>(i % 7) * 64;
  return rank == 0 ? large : rank == 1 ? 3.0f + static_cast<float>(i % 5) : -large + 1;
}

}  // namespace

TEST_CASE("sums are taken in the order of the ranks, wherever an element stands") {
  CHECK(on_ranks(3, [](int rank) -> std::string {
          const Mesh mesh = join({});
          for (const int64_t count : {int64_t{1}, int64_t{10}, int64_t{4097}, int64_t{100000}}) {
            at::Tensor x = at::empty({count}, at::kFloat);
            for (int64_t i = 0; i < count; ++i) x.mutable_data_ptr<float>()[i] = term(rank, i);
            mesh.world->all_reduce_sum(x);
            for (int64_t i = 0; i < count; ++i)
              if (x.const_data_ptr<float>()[i] != term(0, i) + term(1, i) + term(2, i))
                return str("element ", i, " of ", count);
          }
          return "";
        }) == std::vector<int>(3, 0));
}

TEST_CASE("collectives move what each rank has") {
  CHECK(on_ranks(3, [](int rank) -> std::string {
          const Mesh mesh = join({});
          Group& world = *mesh.world;
          at::Tensor part = at::full({5}, rank, at::kLong), whole = at::empty({15}, at::kLong);
          world.all_gather(part, whole);
          for (int64_t i = 0; i < 15; ++i)
            if (whole[i].item<int64_t>() != i / 5) return "all_gather";
          at::Tensor given = at::arange(12, at::kFloat) * (rank + 1), mine = at::empty({4});
          world.reduce_scatter_sum(given, mine);
          for (int64_t i = 0; i < 4; ++i)
            if (mine[i].item<float>() != 6 * static_cast<float>(4 * rank + i))
              return "reduce_scatter_sum";
          at::Tensor said = at::full({3}, rank);
          world.broadcast(said, 2);
          if (said[1].item<float>() != 2) return "broadcast";
          at::Tensor chain = at::full({2, 2}, -1, at::kDouble);
          if (rank == 0) chain.zero_();
          world.in_turn(chain, [&] { chain.mul_(10).add_(rank + 1); });
          if (chain[1][0].item<double>() != 123) return "in_turn";
          at::Tensor passed = at::full({2}, rank, at::kFloat);
          if (rank == 0) world.send(passed, 2);
          if (rank == 2) world.receive(passed, 0);
          if (passed[0].item<float>() != (rank == 2 ? 0 : rank)) return "send and receive";
          return "";
        }) == std::vector<int>(3, 0));
}

TEST_CASE("the axes of a mesh are the groups that they should be") {
  MeshSection section;
  section.fsdp = 2;
  section.tensor = 2;
  CHECK(on_ranks(8, [&](int rank) -> std::string {
          const Mesh mesh = join(section);
          // Who is in a group: the sum of 10^rank.
          const auto members = [&](Group& group) {
            std::vector<double> sum{std::pow(10.0, rank)};
            group.all_reduce_sum(sum);
            return static_cast<int64_t>(sum[0]);
          };
          const auto power = [](int r) { return static_cast<int64_t>(std::pow(10.0, r)); };
          const int t = rank % 2, f = rank / 2 % 2, d = rank / 4;
          const auto at = [](int data, int fsdp, int tensor) {
            return 4 * data + 2 * fsdp + tensor;
          };
          if (members(*mesh.tensor) != power(at(d, f, 0)) + power(at(d, f, 1))) return "tensor";
          if (members(*mesh.fsdp) != power(at(d, 0, t)) + power(at(d, 1, t))) return "fsdp";
          if (members(*mesh.data) != power(at(0, f, t)) + power(at(1, f, t))) return "data";
          if (members(*mesh.data_parallel) != (t == 0 ? 1010101 : 10101010)) return "rows";
          if (members(*mesh.model) != (d == 0 ? 1111 : 11110000)) return "model";
          if (mesh.data_parallel->rank() != 2 * d + f || mesh.data_parallel->size() != 4)
            return "rank among rows";
          if (!mesh.data_parallel->in_step() || mesh.data_parallel->leads() != (t == 0))
            return "rows' kind";
          if (mesh.data_parallel->is_writer() != (rank == 0)) return "is_writer";
          if (mesh.data_parallel->agreed(std::to_string(rank)) != std::to_string(rank - t))
            return "agreed";
          return "";
        }) == std::vector<int>(8, 0));
}

TEST_CASE("ranks that divide the experts are those that compute the same rows") {
  MeshSection section;
  section.fsdp = 2;
  section.expert = 2;
  CHECK(on_ranks(4, [&](int rank) -> std::string {
          const Mesh mesh = join(section);
          if (!mesh.by_expert || mesh.layer_parts() != 1) return "by_expert";
          if (mesh.tensor->size() != 2 || mesh.tensor->rank() != rank % 2) return "place";
          if (mesh.fsdp->size() != 2 || mesh.fsdp->rank() != rank / 2) return "fsdp";
          if (!mesh.data_parallel->has_twins() || mesh.data_parallel->leads() != (rank % 2 == 0))
            return "twins";
          return "";
        }) == std::vector<int>(4, 0));
}

TEST_CASE("ranks that divide the tokens of rows hold the whole model, and sum its gradients") {
  MeshSection section;
  section.fsdp = 2;
  section.context = 2;
  section.tensor = 2;
  CHECK(on_ranks(8, [&](int rank) -> std::string {
          const Mesh mesh = join(section);
          const auto is = [&](Group& group, int size, int place) {
            return group.size() == size && group.rank() == place;
          };
          const int t = rank % 2, c = rank / 2 % 2, f = rank / 4;
          if (!is(*mesh.context, 2, c)) return "context";
          if (!is(*mesh.tensor, 2, t)) return "tensor";
          if (!is(*mesh.same_rows, 4, 2 * c + t)) return "same rows";
          if (!is(*mesh.data_parallel, 2, f)) return "rows";
          if (!is(*mesh.tokens, 4, 2 * f + c)) return "tokens";
          if (!is(*mesh.data, 2, c)) return "data";
          if (!is(*mesh.model, 4, 2 * f + t)) return "model";
          if (mesh.data_parallel->leads() != (c == 0 && t == 0)) return "leads";
          return "";
        }) == std::vector<int>(8, 0));
}

TEST_CASE("axes that do not multiply to the ranks are refused") {
  const auto message = [](int64_t data, int64_t fsdp, int64_t tensor, int64_t ranks,
                          int64_t expert = 1) {
    MeshSection section;
    section.data = data;
    section.fsdp = fsdp;
    section.tensor = tensor;
    section.expert = expert;
    try {
      return std::to_string(section.sizes(ranks, "run.yaml:3: mesh").data);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
  };
  CHECK(message(-1, 2, 2, 8) == "2");
  CHECK(message(2, 2, 2, 8) == "2");
  CHECK(message(-1, 2, 1, 1)
            .starts_with("run.yaml:3: mesh: fsdp 2 x tensor 1 does not divide the 1 rank"));
  CHECK(message(-1, 3, 1, 4).find("does not divide the 4 ranks") != std::string::npos);
  CHECK(message(2, 2, 1, 2).find("data 2 x fsdp 2 x tensor 1 is not the 2 ranks") !=
        std::string::npos);
  CHECK(message(0, 1, 1, 2).starts_with("run.yaml:3: mesh.data: found 0"));
  CHECK(message(-1, 2, 1, 8, 2) == "2");
  CHECK(message(-1, 2, 1, 6, 2)
            .starts_with("run.yaml:3: mesh: fsdp 2 x expert 2 does not divide the 6 ranks"));
  CHECK(message(-1, 1, 2, 4, 2)
            .starts_with(
                "run.yaml:3: mesh: found tensor 2 and expert 2, expected one of them to be 1"));
}

TEST_CASE("ranks that were started differently say where they differ") {
  const std::string first = say({{"version", "1"}, {"config", "a: 1\nb: 2\n"}});
  CHECK_NOTHROW(check_same(first, 1, first));
  CHECK_NOTHROW(check_same(first, 1, say({{"version", "1"}})));  // it reads no more
  std::string message;
  try {
    check_same(first, 1, say({{"version", "1"}, {"config", "a: 1\nb: 3\n"}}));
  } catch (const RunError& e) {
    message = e.what();
  }
  CHECK(message.starts_with("rank 1 on " + host_name() + " has a different config than rank 0"));
  CHECK(message.find("`b: 3`, not `b: 2`") != std::string::npos);
}

TEST_CASE("a rank that ends is noticed by the others at once") {
  // Waiting for its part of a collective would take this long.
  constexpr int kTimeout = 200;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int> statuses = on_ranks(2, [](int rank) -> std::string {
    ::setenv("TEMPER_TIMEOUT_SECONDS", std::to_string(kTimeout).c_str(), 1);
    const Mesh mesh = join({});
    if (rank == 1) ::_exit(7);
    try {
      mesh.world->barrier();
      std::vector<double> one{1};
      mesh.world->all_reduce_sum(one);
    } catch (const RunError& e) {
      // What the collective itself knows, or who looks after the ranks.
      const std::string what = e.what();
      return what.starts_with("rank 0: another rank ") || what.starts_with("rank 0: rank 1 on ")
                 ? ""
                 : what;
    }
    return "no error";
  });
  CHECK(statuses == std::vector<int>{0, 7});
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(kTimeout));
}
