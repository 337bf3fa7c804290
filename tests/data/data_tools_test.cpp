// What temper data goes by: texts and hashes of rows, domains, shares, splits, near duplicates.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include "temper/base/error.h"
#include "temper/data/apportion.h"
#include "temper/data/read/row_list.h"
#include "temper/data/rows/length_summary.h"
#include "temper/data/rows/row_groups.h"
#include "temper/data/rows/row_texts.h"
#include "temper/data/rows/text_format.h"
#include "temper/data/tools/balance.h"
#include "temper/data/tools/domains.h"
#include "temper/data/tools/near_duplicates.h"
#include "temper/data/tools/row_split.h"
#include "tests/data/folder.h"
#include "tests/data/said.h"

using namespace temper;
using namespace temper::data;

namespace {

template <class F>
std::string error_of(const F& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::vector<BalanceGroup> groups_of(const std::vector<int64_t>& rows) {
  std::vector<BalanceGroup> groups;
  for (size_t i = 0; i < rows.size(); ++i)
    groups.push_back({.name = std::string(1, static_cast<char>('a' + i)), .rows = rows[i]});
  return groups;
}

std::vector<int64_t> balanced(std::vector<BalanceGroup> groups, const std::string& targets,
                              BalanceMode mode) {
  set_shares(groups,
             targets.empty() ? std::vector<std::pair<std::string, double>>()
                             : parse_shares(targets, "--target"),
             "--target");
  balance(groups, mode);
  std::vector<int64_t> counts;
  for (const BalanceGroup& group : groups) counts.push_back(group.balanced);
  return counts;
}

std::string domain_of(const std::string& prompt, const std::string& answer = "") {
  const DomainRules& rules = DomainRules::builtin();
  return rules.names()[rules.domain_of({prompt, answer}, "rows:1")];
}

std::string random_text(std::mt19937& random, int words) {
  std::string text;
  for (int i = 0; i < words; ++i) text += "w" + std::to_string(random() % 5000) + " ";
  return text;
}

}  // namespace

TEST_CASE("what rows of all formats ask and answer") {
  const auto is = [](const Json& row, const std::string& prompt, const std::string& answer) {
    const RowTexts texts = texts_of(row);
    CHECK(texts.prompt == prompt);
    CHECK(texts.answer == answer);
  };
  is({{"prompt", "p"}, {"completion", "c"}, {"id", 3}}, "p", "c");
  is({{"question", "p"}, {"answer", "c"}}, "p", "c");
  is({{"prompt", "p"}, {"chosen", "c"}, {"rejected", "r"}}, "p", "c\nr");
  is({{"messages", {said("user", "p"), said("assistant", "c")}}}, "p", "c");
  is({{"prompt", Json::array({said("user", "p")})}, {"completion", {said("assistant", "c")}}}, "p",
     "c");
  is({{"messages",
       {said("user", "p"), said("assistant", "c"), said("user", "q"), said("assistant", "d")}}},
     "user: p\nassistant: c\nuser: q", "d");
  is({{"conversations", {{{"from", "human"}, {"value", "p"}}, {{"from", "gpt"}, {"value", "c"}}}}},
     "p", "c");
  is({{"instruction", "do"}, {"input", "this"}, {"output", "done"}}, "do\nthis", "done");
  is({{"text", "all"}}, "all", "");
  is({{"input_ids", {5, 6, 7}}, {"labels", {-100, 6, 7}}}, "5", "6 7");
  is({{"prompt_ids", {5, 6}}}, "5 6", "");
  is({{"chosen", {said("user", "p"), said("assistant", "c")}},
      {"rejected", {said("user", "p"), said("assistant", "r")}}},
     "p", "c\nr");
  is({{"chosen", "\n\nHuman: p\n\nAssistant: one"},
      {"rejected", "\n\nHuman: p\n\nAssistant: only"}},
     "\n\nHuman: p\n\n", "Assistant: one\nAssistant: only");
  is({{"title", "t"}, {"meta", {{"note", "n"}}}, {"n", 4}}, "t\nn", "");
  is({{"messages", "[{\"role\": \"user\", \"content\": \"p\"}]"}}, "p", "");
  is({{"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "p"}}}}}}}}, "p",
     "");
}

TEST_CASE("hashes of rows go by their fields, those of texts by their words") {
  const auto hash = [](const char* row) { return hash_of_fields(parse_json(row, "row")); };
  CHECK(hash(R"({"a": 1, "b": {"c": [1, 2], "d": null}})") ==
        hash(R"({"b": {"d": null, "c": [1, 2]}, "a": 1})"));
  CHECK(hash(R"({"a": "1"})") != hash(R"({"a": 1})"));
  CHECK(hash(R"({"a": [1, 2]})") != hash(R"({"a": [2, 1]})"));
  CHECK(hash(R"({"a": [[1], 2]})") != hash(R"({"a": [[1, 2]]})"));
  CHECK(hash_of_text("a  b\n") == hash_of_text(" a b"));
  CHECK(hash_of_text("a b") != hash_of_text("ab"));
  CHECK(hash_of_text("a b", 1) != hash_of_text("a b", 2));
}

TEST_CASE("words are lower case runs of letters, and each character of Han") {
  const auto words = [](const char* text) {
    const Words found(text);
    std::string out;
    for (const std::string_view word : found.all()) out += std::string(word) + "|";
    return out;
  };
  CHECK(words("Janet's DUCKS, 16 eggs_a-day.") == "janet|s|ducks|16|eggs_a|day|");
  CHECK(words("Élan ÜBER") == "élan|über|");
  CHECK(words("你好 world") == "你|好|world|");
  CHECK(words(" .,! ") == "");
}

TEST_CASE("a field is found by its name before a path") {
  const Json row = {{"a.b", 1}, {"a", {{"b", 2}, {"c", {{"d", 3}}}}}};
  CHECK(*find_field(row, "a.b") == 1);
  CHECK(*find_field(row, "a.c.d") == 3);
  CHECK(find_field(row, "a.x") == nullptr);
}

TEST_CASE("the built-in domains") {
  CHECK(domain_of("Solve the equation 2x + 3 = 7.") == "mathematics");
  CHECK(domain_of("Natalia sold clips to 48 of her friends in April, and then she sold half as "
                  "many clips in May. How many clips did Natalia sell altogether?") ==
        "mathematics");
  CHECK(domain_of("What is 17 * 23?") == "mathematics");
  CHECK(domain_of("Write a Python function that reverses a list.") == "coding");
  CHECK(domain_of("Fix this.", "```c\nint main() { return 0; }\n```") == "coding");
  CHECK(domain_of("How do I center a div with CSS?") == "coding");
  CHECK(domain_of("Explain photosynthesis to a child.") == "science");
  CHECK(domain_of("Why is the sky blue?") == "science");
  CHECK(domain_of("What is the boiling point of nitrogen?") == "science");
  CHECK(domain_of("Write a short poem about the sea.") == "creative");
  CHECK(domain_of("Tell me a story about a lost dog.") == "creative");
  CHECK(domain_of("Summarize the following article: Scientists found bacteria on a planet whose "
                  "atmosphere has oxygen, carbon and hydrogen.") == "summarization");
  CHECK(domain_of("Give me a summary of this meeting.") == "summarization");
  CHECK(domain_of("What should I pack for a weekend in Paris?") == "general");
  CHECK(domain_of("Hello!") == "general");
}

TEST_CASE("a file of rules: the highest score, of equal ones the first") {
  const Folder folder;
  const std::string path = folder.write("rules.yaml",
                                        "law:\n  keywords: [court, supreme court, contract*]\n"
                                        "money:\n  keywords: [bank]\n  patterns: ['\\$\\d+', "
                                        "'(?i)\\beuros?\\b']\n"
                                        "rest: {}\n");
  const DomainRules rules = DomainRules::read(path);
  const auto of = [&](const std::string& text) {
    return rules.names()[rules.domain_of({text, ""}, "rows:1")];
  };
  CHECK(rules.names() == std::vector<std::string>{"law", "money", "rest"});
  CHECK(of("The Court met the bank.") == "law");
  CHECK(of("The court met the bank, for $5.") == "money");
  CHECK(of("The Supreme Court met the bank, for $5.") == "law");
  CHECK(of("contractual") == "law");
  CHECK(of("banks are courts") == "rest");
  CHECK(of("10 Euro") == "money");
  CHECK(DomainRules::read(folder.write("r.json", R"({"a": {"keywords": ["x"]}})")).names() ==
        std::vector<std::string>{"a", "other"});
  const auto wrong = [&](const std::string& text) {
    return error_of([&] { DomainRules::read(folder.write("w.yaml", text)); });
  };
  CHECK(wrong("a: {keyword: [x]}").find("w.yaml:1: `a.keyword`: expected `keywords`") !=
        std::string::npos);
  CHECK(wrong("a:\n  keywords: x").find("w.yaml:2: `keywords`: found x, expected a list") !=
        std::string::npos);
  CHECK(wrong("a: {patterns: ['(']}").find("`a`: regular expression \"(\"") != std::string::npos);
  CHECK(wrong("a: {keywords: ['!']}").find("the keyword `!` has no word") != std::string::npos);
  CHECK(wrong("a: {}").find("no domain has keywords") != std::string::npos);
  CHECK(wrong("[a]").find("expected rules") != std::string::npos);
}

TEST_CASE("a pattern of a file of rules that takes too long names the row") {
  const DomainRules rules({{"a", {}, {{"(x+x+)+[yz]", 1}}}}, 1, "rules");
  CHECK(error_of([&] {
          rules.domain_of({std::string(60, 'x'), ""}, "rows:7");
        }).starts_with("rows:7: rules: `a`"));
}

TEST_CASE("shares as whole numbers, by the largest remainder") {
  CHECK(apportion(10, {1, 1, 1}) == std::vector<int64_t>{4, 3, 3});
  CHECK(apportion(7, {0.5, 0.3, 0.2}) == std::vector<int64_t>{4, 2, 1});
  CHECK(apportion(100, {0.1, 0.2, 0.7}) == std::vector<int64_t>{10, 20, 70});
  CHECK(apportion(3, {0, 1}) == std::vector<int64_t>{0, 3});
  CHECK(apportion(0, {0.5, 0.5}) == std::vector<int64_t>{0, 0});
  for (int64_t total = 0; total < 300; ++total) {
    const auto counts = apportion(total, {0.07, 0.13, 0.3, 0.5});
    CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == total);
  }
  CHECK(parse_shares("a=0.5,b c=.5", "--target") ==
        std::vector<std::pair<std::string, double>>{{"a", 0.5}, {"b c", 0.5}});
  for (const char* text : {"", "a", "a=x", "a=2", "a=-1", "a=nan", "=1", "a=0.5,", "a=.1,a=.2"})
    CHECK(error_of([&] { parse_shares(text, "--target"); }).starts_with("--target: "));
}

TEST_CASE("balance: exact counts") {
  using enum BalanceMode;
  CHECK(balanced(groups_of({100, 20, 50}), "", kUnder) == std::vector<int64_t>{20, 20, 20});
  CHECK(balanced(groups_of({100, 20, 50}), "", kOver) == std::vector<int64_t>{100, 100, 100});
  CHECK(balanced(groups_of({100, 0, 50}), "", kUnder) == std::vector<int64_t>{50, 0, 50});
  CHECK(balanced(groups_of({100, 100}), "a=0.25,b=0.75", kUnder) == std::vector<int64_t>{33, 100});
  CHECK(balanced(groups_of({100, 100}), "a=0.25,b=0.75", kOver) == std::vector<int64_t>{100, 300});
  CHECK(balanced(groups_of({100, 100}), "a=1", kUnder) == std::vector<int64_t>{100, 0});
  // The groups that no target names keep their proportions.
  CHECK(balanced(groups_of({100, 20, 60}), "a=0.2", kUnder) == std::vector<int64_t>{20, 20, 60});
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::vector<int64_t> rows;
    for (int g = 0; g < 4; ++g) rows.push_back(1 + random() % 1000);
    for (const BalanceMode mode : {kUnder, kOver}) {
      const auto counts = balanced(groups_of(rows), "a=0.1,b=0.2,c=0.3,d=0.4", mode);
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      CHECK(counts == apportion(total, {0.1, 0.2, 0.3, 0.4}));
      double exact = mode == kUnder ? 1e300 : 0;  // rows of exact shares
      for (size_t g = 0; g < rows.size(); ++g) {
        CHECK((mode == kUnder ? counts[g] <= rows[g] : counts[g] >= rows[g]));
        const double of_group = static_cast<double>(rows[g]) / (0.1 * static_cast<double>(g + 1));
        exact = mode == kUnder ? std::min(exact, of_group) : std::max(exact, of_group);
      }
      CHECK(std::abs(static_cast<double>(total) - exact) < 1);
    }
  }
  const auto wrong = [&](const std::string& targets, BalanceMode mode = kUnder) {
    return error_of([&] { balanced(groups_of({100, 0, 5}), targets, mode); });
  };
  CHECK(wrong("x=1").starts_with("--target: no row is in `x`; there are: a, b, c"));
  CHECK(wrong("b=0.5,a=0.5").starts_with("--target: no row is in `b`, of which 0.5"));
  CHECK(wrong("a=0.9,c=0.9").starts_with("--target: the shares add up to 1.8"));
  CHECK(wrong("a=0.5,c=0.4").starts_with("--target: the shares add up to 0.9"));
  CHECK(wrong("a=0.001,c=0.999", kOver).find("--mode under leaves rows out") != std::string::npos);
}

TEST_CASE("which rows are chosen depends on the seed and the group alone") {
  const BalanceGroup group{.name = "a", .rows = 100, .share = 1, .balanced = 30};
  const auto chosen = [](const BalanceGroup& of, uint64_t seed) {
    const RowCounts counts(of, seed);
    std::vector<int64_t> out;
    for (int64_t i = 0; i < of.rows; ++i) out.push_back(counts.of(i));
    return out;
  };
  CHECK(chosen(group, 1) == chosen(group, 1));
  CHECK(chosen(group, 1) != chosen(group, 2));
  for (const int64_t balanced : {0, 1, 30, 99, 100, 101, 250}) {
    BalanceGroup of = group;
    of.balanced = balanced;
    const auto counts = chosen(of, 5);
    CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == balanced);
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    CHECK(*most - *least <= 1);
  }
}

TEST_CASE("a split: exact without repeated prompts, never a prompt on two sides") {
  const auto hashes_of = [](int64_t rows, int64_t prompts) {
    std::vector<RowHash> hashes;
    for (int64_t i = 0; i < rows; ++i)
      hashes.push_back(hash_of_text("prompt " + std::to_string(i % prompts)));
    return hashes;
  };
  const auto counts_of = [](const std::vector<uint8_t>& sides, size_t count) {
    std::vector<int64_t> counts(count);
    for (const uint8_t side : sides) ++counts[side];
    return counts;
  };
  CHECK(counts_of(split_by_hash(hashes_of(1000, 1000), {0.8, 0.1, 0.1}), 3) ==
        std::vector<int64_t>{800, 100, 100});
  for (const int64_t prompts : {1, 2, 3, 7, 50, 300}) {
    const auto hashes = hashes_of(600, prompts);
    const auto sides = split_by_hash(hashes, {0.9, 0.05, 0.05});
    std::set<std::pair<RowHash, uint8_t>> seen;
    for (size_t i = 0; i < hashes.size(); ++i) seen.emplace(hashes[i], sides[i]);
    CHECK(static_cast<int64_t>(seen.size()) == prompts);
    const auto counts = counts_of(sides, 3);
    if (prompts >= 3)
      for (const int64_t count : counts) CHECK(count > 0);
    if (prompts >= 50) CHECK(std::abs(counts[0] - 540) <= 600 / prompts);
  }
  // The order of rows does not matter, and a new row moves few others.
  auto hashes = hashes_of(500, 500);
  const auto before = split_by_hash(hashes, {0.5, 0.5});
  std::vector<RowHash> turned(hashes.rbegin(), hashes.rend());
  auto after = split_by_hash(turned, {0.5, 0.5});
  std::reverse(after.begin(), after.end());
  CHECK(before == after);
  hashes.push_back(hash_of_text("new"));
  after = split_by_hash(hashes, {0.5, 0.5});
  int moved = 0;
  for (size_t i = 0; i < before.size(); ++i) moved += before[i] != after[i];
  CHECK(moved <= 1);
  CHECK(counts_of(split_by_hash(hashes_of(10, 10), {0, 1}), 2) == std::vector<int64_t>{0, 10});
}

TEST_CASE("signatures estimate the similarity") {
  std::mt19937 random(11);
  double error = 0;
  int pairs = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string shared = random_text(random, 60);
    const std::string a = shared + random_text(random, 1 + i % 60),
                      b = shared + random_text(random, 1 + i % 60);
    const Shingles x = shingles_of(a, 3), y = shingles_of(b, 3);
    const Signature p = signature_of(x), q = signature_of(y);
    int agree = 0;
    for (size_t k = 0; k < kSignatureBytes; ++k) agree += p[k] == q[k];
    error += agree / double{kSignatureBytes} - jaccard(x, y);
    ++pairs;
  }
  CHECK(std::abs(error / pairs) < 0.02);
  CHECK(jaccard(shingles_of("a b c d", 3), shingles_of("a b c e", 3)) == doctest::Approx(1.0 / 3));
  CHECK(jaccard({}, {}) == 0);
  CHECK(shingles_of("One, two", 3).size() == 1);
  CHECK(shingles_of("  ", 3).empty());
}

TEST_CASE("near duplicates: those that the exact similarity of all pairs finds, and no others") {
  std::mt19937 random(7);
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) {
    const std::string text = random_text(random, 20 + i % 80);
    texts.push_back(text);
    std::istringstream words(text);
    std::string changed, word;
    for (int at = 0; words >> word; ++at)
      changed += (random() % 30 == 0 ? "changed" + std::to_string(random() % 100) : word) + " ";
    texts.push_back(changed);
  }
  std::vector<Shingles> shingles;
  for (const std::string& text : texts) shingles.push_back(shingles_of(text, 3));
  for (const double threshold : {0.5, 0.8, 0.95, 1.0}) {
    NearDuplicates near(threshold, [&](int64_t i) { return shingles[static_cast<size_t>(i)]; });
    std::vector<size_t> kept;
    int missed = 0, expected = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      bool exists = false;
      for (const size_t k : kept) exists = exists || jaccard(shingles[k], shingles[i]) >= threshold;
      const auto match =
          near.match_or_keep(static_cast<int64_t>(i), shingles[i], signature_of(shingles[i]));
      expected += exists;
      missed += exists && !match;
      if (match) {
        CHECK(match->similarity >= threshold);
        CHECK(match->similarity ==
              jaccard(shingles[static_cast<size_t>(match->number)], shingles[i]));
      } else {
        kept.push_back(i);
      }
    }
    CHECK(expected > 0);
    CHECK(missed * 100 <= expected);
  }
}

TEST_CASE("texts from one template take no quadratic time and share bands") {
  std::mt19937 random(2);
  const std::string frame = random_text(random, 100);
  std::vector<Shingles> shingles;
  for (int i = 0; i < 3000; ++i)
    shingles.push_back(shingles_of(frame + random_text(random, 60), 3));
  int64_t compared = 0;
  NearDuplicates near(0.8, [&](int64_t i) {
    ++compared;
    return shingles[static_cast<size_t>(i)];
  });
  for (size_t i = 0; i < shingles.size(); ++i)
    CHECK(!near.match_or_keep(static_cast<int64_t>(i), shingles[i], signature_of(shingles[i])));
  CHECK(compared < 3000 * 16 * static_cast<int64_t>(near.bands()));
}

TEST_CASE("texts that share bands and are not near are told apart without their shingles") {
  std::mt19937 random(3);
  std::vector<Shingles> shingles;
  for (int i = 0; i < 300; ++i) {  // templates of about 20 words, each with words of its own
    const std::string frame = random_text(random, 14);
    for (int k = 0; k < 4; ++k) shingles.push_back(shingles_of(frame + random_text(random, 6), 3));
  }
  int64_t compared = 0, matched = 0;
  NearDuplicates near(0.8, [&](int64_t i) {
    ++compared;
    return shingles[static_cast<size_t>(i)];
  });
  for (size_t i = 0; i < shingles.size(); ++i)
    matched += near.match_or_keep(static_cast<int64_t>(i), shingles[i], signature_of(shingles[i]))
                   .has_value();
  CHECK(compared <= matched + 3);  // two bytes of a shingle seldom agree by chance
}

TEST_CASE("percentiles and a histogram of lengths") {
  std::vector<int32_t> lengths;
  for (int i = 1; i <= 100; ++i) lengths.push_back(i);
  const LengthSummary summary = summary_of(lengths);
  CHECK(summary.total == 5050);
  CHECK(summary.mean == 50.5);
  CHECK(summary.median == 50);
  CHECK(summary.p90 == 90);
  CHECK(summary.p99 == 99);
  CHECK(summary.longest == 100);
  for (const int64_t longest : {1, 7, 99, 12345, 2000000}) {
    lengths.back() = static_cast<int32_t>(longest);
    const auto bins = histogram_of(lengths, 20);
    CHECK(bins.size() <= 20);
    int64_t rows = 0;
    for (size_t b = 0; b < bins.size(); ++b) {
      rows += bins[b].rows;
      if (b > 0) CHECK(bins[b].from == bins[b - 1].to + 1);
    }
    CHECK(rows == 100);
    CHECK(bins.front().from <= 1);
    CHECK(bins.back().to >= longest);
  }
  CHECK(histogram_of({}).empty());
  CHECK(histogram_of({5, 5}).size() == 1);
}

TEST_CASE("rows of several sources in order, and the first wrong one is named") {
  const Folder folder;
  const std::string a = folder.write("a.jsonl", "{\"q\": 1}\n\n{\"q\": 2}\n");
  const std::string b = folder.write("b.csv", "q\n3\n");
  const RowList rows({a, b}, {{"prompt", "q"}});
  CHECK(rows.size() == 3);
  CHECK(rows.line(1) == "{\"q\": 2}");
  CHECK(rows.where(1) == a + ":3");
  CHECK(rows.renamed(2)["prompt"] == "3");
  CHECK(rows.files() == std::vector<std::string>{a, b});
  CHECK(error_of([&] {
          RowList({a, folder.path + "/./a.jsonl"});
        }).ends_with("named twice among the inputs"));
  std::vector<int64_t> order;
  each_in_order(
      5000, [](int64_t i) { return i * i; },
      [&](int64_t i, int64_t square) {
        CHECK(square == i * i);
        order.push_back(i);
      },
      3);
  CHECK(order.size() == 5000);
  int64_t consumed = 0;
  CHECK(error_of([&] {
          each_in_order(
              5000,
              [](int64_t i) {
                check<DataError>(i < 2100 || i % 7 != 0, "row ", i);
                return i;
              },
              [&](int64_t, int64_t) { ++consumed; }, 4);
        }) == "row 2100");
  CHECK(consumed == 2100);
}

TEST_CASE("groups by a field") {
  const RowGroups by("meta.kind", "");
  CHECK(by.of({{"meta", {{"kind", "x"}}}}, "r:1") == "x");
  CHECK(by.of({{"meta", {{"kind", 3}}}}, "r:1") == "3");
  CHECK(error_of([&] { by.of({{"meta", 1}}, "r:1"); }) ==
        "r:1: no `meta.kind`; the row has [meta]");
  CHECK(error_of([&] {
          by.of({{"meta", {{"kind", nullptr}}}}, "r:1");
        }).starts_with("r:1: `meta.kind`: found null"));
}

TEST_CASE("a row's group is that of the row as the file has it") {
  TextFormat format;
  format.groups = std::make_shared<const RowGroups>("instruction", "");
  const Json alpaca = {{"instruction", "Add."}, {"input", "1, 2"}, {"output", "3"}};
  CHECK(group_of(format, alpaca, "rows.jsonl:1") == "Add.");
  format.groups = std::make_shared<const RowGroups>("kind", "");
  format.columns = {{"kind", "source"}};
  CHECK(group_of(format, {{"prompt", "1"}, {"source", "web"}}, "") == "web");
  // A metric needs a name, and an empty one says that there is no group.
  CHECK(group_of(format, {{"prompt", "1"}, {"source", ""}}, "") == "(empty)");
}
