/* from_port PORT ADDRESS TO: connects from a local port, within two seconds; exits with 0 if it did. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct sockaddr_in here = {.sin_family = AF_INET}, there = {.sin_family = AF_INET};
  if (argc != 4) return 2;
  here.sin_port = htons(atoi(argv[1]));
  inet_pton(AF_INET, argv[2], &there.sin_addr);
  there.sin_port = htons(atoi(argv[3]));
  int s = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(s, (struct sockaddr *)&here, sizeof here)) return 3;
  alarm(2);
  return connect(s, (struct sockaddr *)&there, sizeof there) ? 1 : 0;
}
