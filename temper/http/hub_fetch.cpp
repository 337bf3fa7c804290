#include "temper/http/hub_fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/glob.h"
#include "temper/base/json.h"
#include "temper/http/client.h"
#include "temper/http/hub_names.h"

namespace temper::http {
namespace {

namespace fs = std::filesystem;

constexpr int kMostRedirections = 8, kTriesInVain = 5;
constexpr size_t kMostFilesListed = 100'000;
constexpr size_t kLargestPage = size_t{64} << 20;
constexpr size_t kCommitLength = 40, kSha256Length = 64;  // characters

struct Address {
  std::string origin, path;
};

Address address_of(const std::string& url) {
  const size_t scheme = url.find("://");
  const size_t path = scheme == url.npos ? url.npos : url.find_first_of("/?", scheme + 3);
  const std::string origin = url.substr(0, path);
  Address out{parse_url(origin, "the hub's redirection").origin,
              path == url.npos ? "/" : url.substr(path)};
  if (out.path[0] == '?') out.path = "/" + out.path;
  check(std::ranges::all_of(out.path, [](unsigned char c) { return c > ' ' && c != 127; }),
        "the hub redirects to an address with spaces or control characters");
  return out;
}

int64_t file_size_of(const std::string& path) {
  std::error_code none;
  const auto size = fs::file_size(path, none);
  return none ? 0 : static_cast<int64_t>(size);
}

// One at a time of this program's processes, and of huggingface_hub's, writes a blob.
class BlobLock {
 public:
  explicit BlobLock(const std::string& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    check(file_.get() >= 0, path, ": cannot write: ", errno_text);
    while (::flock(file_.get(), LOCK_EX) != 0)
      check(errno == EINTR, path, ": cannot lock: ", errno_text);
  }

 private:
  FileDescriptor file_;
};

class HubRepository {
 public:
  explicit HubRepository(const HubFetch& what)
      : what_(what),
        directory_(hub_repository(what.kind, what.id)),
        endpoint_(parse_url(what.endpoint, "HF_ENDPOINT")) {}

  std::string fetch() {
    const std::vector<std::string> files = list();
    what_.begun(std::ssize(files));
    const std::string snapshot = directory_ + "/snapshots/" + commit_;
    fs::create_directories(snapshot);
    fs::create_directories(directory_ + "/blobs");
    for (const std::string& file : files) {
      link(fetch_file(file), snapshot, file);
      what_.progress(1, 0);
    }
    if (what_.revision != commit_) {
      const std::string ref = directory_ + "/refs/" + what_.revision;
      fs::create_directories(fs::path(ref).parent_path());
      write_file_atomic(ref, commit_);
    }
    return snapshot;
  }

 private:
  bool dataset() const { return what_.kind == HubKind::kDataset; }

  Client& client(const std::string& origin) {
    std::unique_ptr<Client>& found = clients_[origin];
    if (!found) {
      const bool own = origin == endpoint_.origin;
      found = std::make_unique<Client>(ServerUrl{origin, own ? endpoint_.prefix : ""},
                                       own ? what_.token : "", what_.timeout_seconds);
    }
    return *found;
  }

  [[noreturn]] void refuse(const Failure& e) const {
    const bool unknown = e.status == 404 || e.status == 401 || e.status == 403;
    const std::string problem = str(what_.id, ": ", endpoint_.str(), e.what());
    if (!unknown) throw RunError(problem);
    throw ConfigError(str(problem, "; expected a ", dataset() ? "data set" : "model",
                          " and a revision (", what_.revision,
                          ") that the hub knows; private and gated ones need HF_TOKEN"));
  }

  // The repository's files that are asked for; sets commit_.
  std::vector<std::string> list() {
    const std::string path = str("/api/", dataset() ? "datasets/" : "models/", what_.id,
                                 "/revision/", percent_encoded(what_.revision, false));
    Json info;
    try {
      info = parse_json(client(endpoint_.origin).get(path), endpoint_.str() + path);
    } catch (const Failure& e) {
      refuse(e);
    } catch (const DataError& e) {
      throw RunError(e.what());
    }
    const Json* commit = find_field(info, "sha");
    check(commit && commit->is_string() && is_hex(*commit, kCommitLength), endpoint_.str(), path,
          ": the answer has no commit (`sha`)");
    commit_ = *commit;
    std::vector<std::string> files;
    for (const std::string& name : names(info)) {
      check(is_inner_path(name), what_.id,
            ": the hub lists a file whose path does not stay in the cache: ",
            dump_json(name).substr(0, 200));
      const bool asked = what_.include.empty() ||
                         std::ranges::any_of(what_.include, [&](const std::string& pattern) {
                           return matches_glob(pattern, name);
                         });
      if (asked) files.push_back(name);
    }
    check<ConfigError>(
        !files.empty(), what_.id, ": ",
        what_.include.empty() ? "the hub lists no files" : "--include matches none of its files");
    return files;
  }

  // The paths of all files: the answer about the repository has them, or the tree of the commit,
  // page by page.
  std::vector<std::string> names(const Json& info) {
    std::vector<std::string> found;
    const auto add = [&](const Json& list, const char* key) {
      check(list.is_array() && found.size() + list.size() <= kMostFilesListed, what_.id,
            ": the hub gives no list of at most ", kMostFilesListed, " files");
      for (const Json& file : list) {
        const Json *type = find_field(file, "type"), *name = find_field(file, key);
        if (type && *type != "file") continue;  // a directory
        check(name && name->is_string(), what_.id, ": the hub lists a file without a path");
        found.push_back(*name);
      }
    };
    if (const Json* siblings = find_field(info, "siblings"); siblings && siblings->is_array()) {
      add(*siblings, "rfilename");
      return found;
    }
    std::string path = str("/api/", dataset() ? "datasets/" : "models/", what_.id, "/tree/",
                           commit_, "?recursive=true&expand=false");
    while (!path.empty()) {
      std::string page;
      AnswerHead head;
      try {
        head = client(endpoint_.origin)
                   .download(path, {}, {.begun = {}, .part = [&](std::string_view bytes) {
                                          check(page.size() + bytes.size() <= kLargestPage,
                                                what_.id, ": the hub's list of files does not end");
                                          page += bytes;
                                        }});
      } catch (const Failure& e) {
        refuse(e);
      }
      try {
        add(parse_json(page, endpoint_.str() + path), "path");
      } catch (const DataError& e) {
        throw RunError(e.what());
      }
      path = next_page(head.field("link"));
    }
    return found;
  }

  // The path behind the endpoint of `<URL>; rel="next"`; empty: this was the last page.
  std::string next_page(const std::string& link) const {
    const size_t begin = link.find('<'), end = link.find('>');
    if (link.find("rel=\"next\"") == link.npos || begin == link.npos || end < begin) return {};
    const Address next = address_of(link.substr(begin + 1, end - begin - 1));
    check(next.origin == endpoint_.origin && next.path.starts_with(endpoint_.prefix), what_.id,
          ": the hub's list of files goes on at another host: ", link.substr(0, 200));
    return next.path.substr(endpoint_.prefix.size());
  }

  struct About {
    std::string etag;
    int64_t size = -1;  // -1: the hub does not say
  };

  std::string path_of(const std::string& file) const {
    return str(dataset() ? "/datasets/" : "/", what_.id, "/resolve/", commit_, "/",
               percent_encoded(file, true));
  }

  // What the hub says of a file; another host, to which it sends us for the bytes, is not asked.
  About about(const std::string& file) {
    std::string path = path_of(file);
    for (int i = 0; i < kMostRedirections; ++i) {
      AnswerHead head;
      try {
        head = client(endpoint_.origin).download(path, {"Accept-Encoding: identity"}, {});
      } catch (const Failure& e) {
        if (e.status == 401 || e.status == 403) refuse(e);
        throw RunError(str(file, ": ", endpoint_.str(), e.what()));
      }
      const std::string linked = head.field("x-linked-etag"), to = head.field("location");
      if (head.status / 100 == 3 && linked.empty() && to.starts_with('/') &&
          !to.starts_with("//")) {
        path = to.substr(to.starts_with(endpoint_.prefix) ? endpoint_.prefix.size() : 0);
        continue;
      }
      About found{linked.empty() ? head.field("etag") : linked, -1};
      const std::string of_link = head.field("x-linked-size"),
                        own = head.status / 100 == 2 ? head.field("content-length") : "";
      const std::string& size = of_link.empty() ? own : of_link;
      std::from_chars(size.data(), size.data() + size.size(), found.size);
      if (found.etag.starts_with("W/")) found.etag.erase(0, 2);
      std::erase(found.etag, '"');
      check(is_safe_name(found.etag), file, ": the hub gives no usable ETag, found `",
            found.etag.substr(0, 100), "`");
      return found;
    }
    throw RunError(str(file, ": the hub redirects without end"));
  }

  // The blob's name.
  std::string fetch_file(const std::string& file) {
    const About wanted = about(file);
    const std::string blob = directory_ + "/blobs/" + wanted.etag, part = blob + ".incomplete";
    const fs::path locks =
        fs::path(hub_cache_directory()) / ".locks" / fs::path(directory_).filename();
    fs::create_directories(locks);
    const BlobLock lock((locks / (wanted.etag + ".lock")).string());
    std::error_code none;
    if (fs::exists(blob, none) && (wanted.size < 0 || file_size_of(blob) == wanted.size))
      return wanted.etag;
    receive(file, part, wanted);
    verify(file, part, wanted);
    fs::rename(part, blob);
    return wanted.etag;
  }

  void receive(const std::string& file, const std::string& part, const About& wanted) {
    if (wanted.size >= 0 && file_size_of(part) > wanted.size) fs::remove(part);
    what_.progress(0, file_size_of(part));
    for (int in_vain = 0;;) {
      const int64_t before = file_size_of(part);
      if (wanted.size >= 0 && before == wanted.size && fs::exists(part)) return;
      try {
        receive_rest(file, part, before);
        const int64_t size = file_size_of(part);
        if (wanted.size < 0 || size >= wanted.size) return;
        throw Failure("the answer ended after " + std::to_string(size) + " bytes", true);
      } catch (const Failure& e) {
        if (e.status == 416) fs::remove(part);  // what is there is no part of it
        in_vain = file_size_of(part) > before ? 0 : in_vain + 1;
        const bool lasting = e.status >= 400 && e.status < 500 && !e.busy() && e.status != 416;
        check(!lasting && in_vain < kTriesInVain, file, ": ", e.what(),
              "; the same command goes on where it ended");
        if (in_vain > 0) ::usleep(200'000u << std::min(in_vain, 4));
      }
    }
  }

  // The bytes from `begin` on, or all where the server gives them.
  void receive_rest(const std::string& file, const std::string& part, int64_t begin) {
    Address at{endpoint_.origin, path_of(file)};
    std::vector<std::string> fields{"Accept-Encoding: identity"};
    if (begin > 0) fields.push_back(str("Range: bytes=", begin, "-"));
    for (int i = 0; i < kMostRedirections; ++i) {
      std::optional<FileDescriptor> out;
      const Client::Download to{
          .begun =
              [&](const AnswerHead& head) {
                const bool rest =
                    head.status == 206 && begin > 0 &&
                    head.field("content-range").starts_with(str("bytes ", begin, "-"));
                check(head.status == 200 || rest, file, ": the server answers a request for ",
                      begin > 0 ? "the rest" : "a file", " with status ", head.status);
                const int how = O_WRONLY | O_CREAT | O_CLOEXEC | (rest ? O_APPEND : O_TRUNC);
                out.emplace(::open(part.c_str(), how, 0644));
                check(out->get() >= 0, part, ": cannot write: ", errno_text);
              },
          .part =
              [&](std::string_view bytes) {
                write_all(out->get(), bytes.data(), bytes.size(), part);
                what_.progress(0, std::ssize(bytes));
              }};
      const AnswerHead head = client(at.origin).download(at.path, fields, to);
      if (head.status / 100 == 2) return;
      const std::string location = head.field("location");
      check(!location.empty(), file, ": redirected to nowhere (status ", head.status, ")");
      if (location.starts_with('/') && !location.starts_with("//"))
        at.path = at.origin == endpoint_.origin && location.starts_with(endpoint_.prefix)
                      ? location.substr(endpoint_.prefix.size())
                      : location;
      else
        at = address_of(location);
    }
    throw RunError(str(file, ": redirected more than ", kMostRedirections, " times"));
  }

  void verify(const std::string& file, const std::string& part, const About& wanted) {
    const int64_t size = file_size_of(part);
    std::string problem;
    if (wanted.size >= 0 && size != wanted.size)
      problem = str(size, " bytes came, expected ", wanted.size);
    const bool sha256 = is_hex(wanted.etag, kSha256Length);
    if (problem.empty() && (sha256 || is_hex(wanted.etag, kCommitLength)))
      if (const std::string found = digest_of(part, sha256); found != wanted.etag)
        problem = str("its ", sha256 ? "SHA-256" : "SHA-1 (as git's)", " is ", found, ", expected ",
                      wanted.etag);
    if (problem.empty()) return;
    fs::remove(part);
    throw RunError(str(file, ": ", problem, "; what came is deleted"));
  }

  void link(const std::string& etag, const std::string& snapshot, const std::string& file) const {
    const fs::path place = fs::path(snapshot) / file;
    fs::create_directories(place.parent_path());
    std::string target = "../../blobs/" + etag;
    for (const char c : file)
      if (c == '/') target = "../" + target;
    std::error_code none;
    if (fs::is_symlink(place, none) && fs::read_symlink(place, none) == target) return;
    const fs::path made = place.string() + str(".tmp-", ::getpid());
    fs::remove(made, none);
    fs::create_symlink(target, made);
    fs::rename(made, place);
  }

  const HubFetch& what_;
  const std::string directory_;
  const ServerUrl endpoint_;
  std::string commit_;
  std::map<std::string, std::unique_ptr<Client>> clients_;  // by origin
};

}  // namespace

std::string fetch_from_hub(const HubFetch& what) {
  check<ConfigError>(is_hub_id(what.id), "found the id `", what.id,
                     "`, expected ORG/NAME, as in Qwen/Qwen2.5-0.5B-Instruct");
  check<ConfigError>(is_inner_path(what.revision) && what.revision.size() <= 255,
                     "--revision: found `", what.revision,
                     "`, expected a branch, a tag or a commit");
  try {
    return HubRepository(what).fetch();
  } catch (const fs::filesystem_error& e) {
    throw RunError(str(what.id, ": ", e.what()));
  }
}

}  // namespace temper::http
