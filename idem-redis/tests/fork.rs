//! A store in a child that was forked while it was open: on a shared socket replies would go to either process.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

#[cfg(unix)]
mod forked {
    use std::time::Duration;

    use idem_conformance::forked::{Inherited, amid, block_on, in_child};
    use idem_core::{Error, Idem, Key, Outcome, Request, Transaction, erase};
    use idem_redis::{RedisStore, testing::Server};
    use tokio::runtime::{Builder, Runtime};

    pub(super) const TESTS: &[(&str, fn())] = &[
        ("every call of a child is refused, and its parent goes on", calls),
        ("a child that drops the last handle leaves its parent's connection", drops),
        ("a store that a child opens shares the server and nothing else", own_store),
        ("no child hangs that was forked amid commits, and no reply is lost", amid_commits),
        #[cfg(feature = "streams")]
        ("every call of a child on a stream is refused", streams),
    ];

    /// The parent's connection lives in a runtime whose threads a child does not have.
    struct Parent {
        runtime: Runtime,
        server: Server,
        store: RedisStore,
    }

    impl Parent {
        fn start() -> Self {
            let server = Server::start().unwrap();
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.unwrap();
            let store = runtime.block_on(RedisStore::open(&server.url())).unwrap();
            Self { runtime, server, store }
        }
    }

    /// How many connections the server was asked for, that of this question too.
    fn connections(server: &Server) -> u64 {
        let told: String = server.query(&["INFO", "stats"]).unwrap();
        let count = told.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().trim().parse().unwrap()
    }

    async fn order(idem: &Idem<RedisStore>, name: &str) -> Result<Outcome<String>, Error> {
        let request = Request::new(Key::new("north", "order", name).unwrap());
        let told = name.to_string();
        let effect = move |tx: &mut idem_redis::RedisTransaction| {
            tx.put(told.as_bytes(), b"ordered")?;
            Ok(told.clone())
        };
        idem.execute(&request, effect).await
    }

    fn calls() {
        let Parent { runtime, server: _server, store } = Parent::start();
        let (idem, erased) = (Idem::new(store.clone()), Idem::new(erase(store.clone())));
        let mut own = Some(runtime.block_on(Inherited::of(&idem, "own")));
        let mut dynamic = Some(runtime.block_on(Inherited::of(&erased, "dynamic")));
        in_child("the calls of a store", || own.take().unwrap().is_refused());
        in_child("the calls of any store", || dynamic.take().unwrap().is_refused());
        in_child("asking what endangers receipts", || {
            let error = block_on(store.check()).unwrap_err();
            assert!(matches!(error.kind(), idem_core::ErrorKind::OtherProcess { .. }), "{error:?}");
        });
        runtime.block_on(async {
            own.unwrap().goes_on().await;
            dynamic.unwrap().goes_on().await;
            assert_eq!(order(&idem, "a").await.unwrap(), Outcome::Created("a".to_string()));
            idem.close().await.unwrap();
        });
    }

    fn drops() {
        let Parent { runtime, server, store } = Parent::start();
        let mut idem = Some(Idem::new(store));
        let ordered = |idem: &Idem<RedisStore>, name: &str| {
            let outcome = runtime.block_on(order(idem, name)).unwrap();
            assert_eq!(outcome, Outcome::Created(name.to_string()));
        };
        ordered(idem.as_ref().unwrap(), "a");
        let before = connections(&server);
        in_child("the drop of a store", || {
            drop(idem.take());
            // Nothing is shut down later, either.
            std::thread::sleep(Duration::from_millis(200));
        });
        ordered(&idem.unwrap(), "b");
        let after = connections(&server);
        // The question's own.
        assert!(after <= before + 1, "{before} and {after}");
    }

    fn own_store() {
        let Parent { runtime, server, store } = Parent::start();
        let idem = Idem::new(store);
        let outcome = runtime.block_on(order(&idem, "a")).unwrap();
        assert_eq!(outcome, Outcome::Created("a".to_string()));
        in_child("a store of the child's", || {
            block_on(async {
                let own = Idem::new(RedisStore::open(&server.url()).await.unwrap());
                let replayed = order(&own, "a").await.unwrap();
                assert_eq!(replayed, Outcome::Replayed("a".to_string()));
                let created = order(&own, "b").await.unwrap();
                assert_eq!(created, Outcome::Created("b".to_string()));
                // It is ended on a thread of the child's.
                let held = Request::new(Key::new("north", "charge", "held").unwrap());
                let claim = own.claim::<u64>(&held, Duration::from_secs(60)).await.unwrap();
                drop(claim.lease().unwrap());
                let waiting = held.wait_for(Duration::from_secs(30));
                let claim = own.claim::<u64>(&waiting, Duration::from_secs(60)).await.unwrap();
                claim.lease().unwrap().release().await.unwrap();
                own.close().await.unwrap();
            });
        });
        runtime.block_on(async {
            let replayed = order(&idem, "b").await.unwrap();
            assert_eq!(replayed, Outcome::Replayed("b".to_string()));
            idem.close().await.unwrap();
        });
    }

    fn amid_commits() {
        let Parent { runtime, server: _server, store } = Parent::start();
        let idem = Idem::new(store);
        let writer = |thread: usize| {
            let (idem, runtime) = (idem.clone(), &runtime);
            move |round: usize| {
                let name = format!("{thread}-{round}");
                let outcome = runtime.block_on(order(&idem, &name)).unwrap();
                // Nobody else's reply.
                assert_eq!(outcome, Outcome::Created(name));
            }
        };
        amid((0..4).map(writer), |fork| {
            let held = format!("fork-{fork}");
            let mut inherited = Some(runtime.block_on(Inherited::of(&idem, &held)));
            in_child("the calls amid commits", || inherited.take().unwrap().is_refused());
            runtime.block_on(inherited.unwrap().goes_on());
        });
    }

    #[cfg(feature = "streams")]
    fn streams() {
        use idem_core::{BoxError, ErrorKind, consumer::Queue};
        use idem_redis::streams::StreamQueue;

        fn refused<T>(result: Result<T, BoxError>) {
            let Err(error) = result else { panic!("it was not refused in another process") };
            let error = error.downcast::<Error>().unwrap();
            assert!(matches!(error.kind(), ErrorKind::OtherProcess { .. }), "{error:?}");
        }

        let Parent { runtime, server, store: _store } = Parent::start();
        let (url, builder) = (server.url(), StreamQueue::builder("orders", "billing"));
        let queue = runtime.block_on(builder.open(&url)).unwrap();
        runtime.block_on(queue.send([("amount", "100")])).unwrap();
        let received = runtime.block_on(queue.receive(1)).unwrap();
        let tag = received[0].tag.clone();
        let mut inherited = Some(queue);
        in_child("the calls of a queue", || {
            let queue = inherited.take().unwrap();
            let reason = Error::nothing_done(ErrorKind::Closed);
            block_on(async {
                refused(queue.send([("amount", "200")]).await.map_err(Into::into));
                refused(queue.receive(1).await);
                refused(queue.ack(&tag).await);
                refused(queue.nack(&tag, &reason).await);
                refused(queue.extend(&tag).await);
                refused(queue.set_aside(&tag, &reason).await);
                refused(queue.close().await.map_err(Into::into));
            });
            drop(queue);
        });
        runtime.block_on(async {
            let queue = inherited.unwrap();
            queue.ack(&tag).await.unwrap();
            assert!(queue.close().await.unwrap());
        });
    }
}

fn main() {
    #[cfg(unix)]
    idem_conformance::forked::run(forked::TESTS);
}
