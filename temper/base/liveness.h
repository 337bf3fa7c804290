// Notices hosts that vanish without a word: a cable that is cut, a machine that loses its power. A
// process that is stopped or busy does not count: its kernel answers.
#pragma once

namespace temper {

// Makes a connection fail when the other end's host is silent for about 30 seconds while nothing is
// on its way; of a listening socket, the connections that it takes.
void notice_silence(int socket);
// The same while something is on its way. Only for connections on which little is sent: one whose
// other end takes nothing for so long, as its process is stopped, fails as well.
void notice_unanswered(int socket);

}  // namespace temper
