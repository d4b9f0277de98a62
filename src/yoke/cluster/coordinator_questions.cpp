// Requests of programs that hold the job's key but are no rank: launchers of other machines, and tools that
// ask a rank something. The coordinator passes questions on and answers back; it does not know what they
// mean.
#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/cluster/coordinator_impl.h"
#include "yoke/cluster/identity.h"

namespace yoke::cluster {
namespace {

constexpr size_t kMostQuestions = 1024;  // without an answer, of all outsiders together

}  // namespace

void Coordinator::Impl::on_outsider(Client& client, uint64_t request, const std::string& verb,
                                    const control::Note& note) {
  if (verb == "ended") return on_ended(client, request, note);
  if (verb == "cause")
    return reply(client, request, failure ? control::to_json(*failure) : nlohmann::json::object());
  if (verb == "evicted") return on_evicted(client, request, note);
  if (verb == "ranks") return reply(client, request, describe_ranks());
  if (verb == "expendable")
    return reply(
        client, request,
        {{verb, expendable(static_cast<size_t>(control::number(note.head, "rank", 0, kMaxWorldSize)))}});
  if (verb == "seats") return on_seats(client, request, note);
  if (verb == "ask") return on_question(client, request, note);
  if (verb == "seat") return on_seat(client, request);
  throw CommError("'{}' of a program that is no rank", verb);
}

// Numbers for processes that join the running job. They are never given twice.
void Coordinator::Impl::on_seats(Client& client, uint64_t request, const control::Note& note) {
  const auto count = static_cast<int>(control::number(note.head, "count", 1, kMaxWorldSize));
  if (!elastic())
    return reply(
        client, request,
        {{"error", "this job is not elastic: no rank can join it. Start it with yoke run --elastic"}});
  if (failure) return reply(client, request, {{"error", "the job has failed: " + failure->what}});
  if (count > kMaxWorldSize - next_seat)
    return reply(client, request,
                 {{"error", fmt::format("{} ranks have joined this job so far, and {} more are too many; at "
                                        "most {} can",
                                        next_seat, count, kMaxWorldSize)}});
  const int first = formed ? std::exchange(next_seat, next_seat + count) : -1;
  reply(client, request, {{"first", first}});
}

nlohmann::json Coordinator::Impl::describe_ranks() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Member& member : roll.members()) {
    nlohmann::json one = control::to_json(member);
    one["ended"] = has_ended(static_cast<size_t>(member.rank));
    list.push_back(std::move(one));
  }
  return {{"ranks", std::move(list)}, {"formed", formed}, {"failed", failure != nullptr}};
}

void Coordinator::Impl::on_question(Client& client, uint64_t request, const control::Note& note) {
  const auto rank = static_cast<int>(control::number(note.head, "rank", 0, INT32_MAX));
  auto asked = std::find_if(clients.begin(), clients.end(),
                            [&](const auto& one) { return one.second->rank == rank && one.second->entered; });
  if (asked == clients.end())
    return reply(client, request, {{"error", fmt::format("rank {} is not in the job", rank)}});
  if (questions.size() >= kMostQuestions)
    return reply(client, request,
                 {{"error", fmt::format("{} questions wait for an answer already", questions.size())}});
  const int64_t number = next_question++;
  questions[number] = {client.connection->fd(), request, asked->first};
  send(*asked->second, net::FrameType::kReply, 0, control::encode({{"question", number}}, note.value));
}

void Coordinator::Impl::on_answer(Client& client, const control::Note& note) {
  auto found = questions.find(control::number(note.head, "question", 0, INT64_MAX));
  if (found == questions.end()) return;  // the asker has left
  const Question question = found->second;
  if (question.rank_fd != client.connection->fd())
    throw CommError("an answer of rank {}, which was not asked", client.rank);
  questions.erase(found);
  auto asker = clients.find(question.fd);
  if (asker == clients.end()) return;
  const std::string error = control::text(note.head, "error", 16 << 10);
  nlohmann::json head = nlohmann::json::object();
  if (!error.empty()) head["error"] = error;
  reply(*asker->second, question.request, head, note.value);
}

// A connection has ended: of an asker, or of a rank that was asked.
void Coordinator::Impl::forget_questions(int fd) {
  for (const auto& [number, question] : questions) {
    auto asker = clients.find(question.fd);
    if (question.rank_fd == fd && asker != clients.end() && question.fd != fd)
      reply(*asker->second, question.request, {{"error", "the rank has left the job"}});
  }
  std::erase_if(questions, [&](const auto& one) { return one.second.fd == fd || one.second.rank_fd == fd; });
}

}  // namespace yoke::cluster
