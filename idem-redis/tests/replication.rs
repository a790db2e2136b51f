//! Replicas: they follow, and become primaries when told so.

use idem_redis::testing::Server;

#[test]
fn a_replica_follows_until_it_is_promoted() {
    let primary = Server::builder().password("secret").start().unwrap();
    primary.command(&["SET", "before", "1"]).unwrap();
    let replica = Server::start().unwrap();
    replica.replicate_from(&primary).unwrap();
    assert_eq!(replica.query::<i64>(&["GET", "before"]).unwrap(), 1);

    let error = replica.command(&["SET", "name", "value"]).unwrap_err();
    assert_eq!(error.code(), Some("READONLY"));
    // WAIT waits for what its own connection wrote.
    let mut connection = redis::Client::open(primary.url()).unwrap().get_connection().unwrap();
    redis::cmd("SET").arg("after").arg(2).query::<()>(&mut connection).unwrap();
    let reached: i64 = redis::cmd("WAIT").arg(1).arg(20_000).query(&mut connection).unwrap();
    assert_eq!(reached, 1);
    assert_eq!(replica.query::<i64>(&["GET", "after"]).unwrap(), 2);

    replica.promote().unwrap();
    replica.command(&["SET", "name", "value"]).unwrap();
    assert_eq!(primary.query::<Option<String>>(&["GET", "name"]).unwrap(), None);
}
