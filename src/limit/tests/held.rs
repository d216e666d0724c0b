//! The line of a service that is paused.

use std::iter;

use super::*;

/// The limit's state after a pause that became longer by `longer`, until then.
fn lengthened(
    state: LimitState,
    limit: &RateLimit,
    longer: Duration,
    until: SystemTime,
    now: SystemTime,
) -> LimitState {
    let mut item = Item::default();
    let Some(update) = state.lengthened(limit, &Update::new(), longer, until, now) else {
        return state;
    };
    assert!(!update.apply(&mut item), "another line is not lengthened");
    let line_end = Update::new().set(LINE_END, state.line_end).set(TAT, state.tat);
    assert!(line_end.set(HELD_BACK, state.held_back).apply(&mut item));
    assert!(update.apply(&mut item), "the line is as it was seen");
    LimitState::of(&item)
}

proptest! {
    #[test]
    fn messages_that_holds_call_up_move_to_places_of_their_own_after_them(
        waiting in 1_usize..300,
        pauses in prop::collection::vec((0_u64..30_000, 1_u64..60_000), 1..5),
    ) {
        let limit = limit(10, 1);
        let known = KnownLimit::own(&limit);
        let mut state = LimitState::default();
        let mut line: Vec<_> = iter::repeat_with(|| admit(&mut state, &limit, Ask::Newcomer, 0))
            .filter_map(|admitted| match admitted {
                Admission::InLine(place, turn) => Some((place, turn)),
                _ => None,
            })
            .take(waiting)
            .collect();
        let (mut now, mut until) = (at(0), at(0));
        for (after, length) in pauses {
            now += millis(after);
            // Their calls were made.
            line.retain(|(_, turn)| *turn > now);
            let next = until.max(now + millis(length));
            let longer = next.duration_since(until.max(now)).expect("later");
            state = lengthened(state, &limit, longer, next, now);
            until = next;
            for (place, turn) in &mut line {
                let stays = *turn > until;
                let before = *turn;
                (*place, *turn) = state.held(&known, *place, until, now);
                prop_assert!(*turn >= until);
                prop_assert!(!stays || *turn == before);
            }
            let mut turns: Vec<_> = line.iter().map(|(_, turn)| *turn).collect();
            turns.sort_unstable();
            for two in turns.windows(2) {
                let apart = two[1].duration_since(two[0]).expect("sorted");
                prop_assert!(apart >= limit.interval(), "{apart:?}");
            }
            if let Some(last) = turns.last() {
                let newcomer = admit(&mut state, &limit, Ask::Newcomer, millis_since(now));
                let Admission::InLine(_, turn) = newcomer else { panic!("{newcomer:?}") };
                prop_assert!(turn > *last);
            }
        }
    }
}

fn millis_since(now: SystemTime) -> u64 {
    u64::try_from(now.duration_since(at(0)).expect("later").as_millis()).expect("soon")
}

#[test]
fn a_message_with_a_place_that_is_over_is_called_after_the_hold() {
    let limit = limit(10, 1);
    let state = LimitState::default();
    let (place, turn) =
        state.held(&KnownLimit::own(&limit), Place::from_time(at(0)), at(5_000), at(1_000));
    assert_eq!((place, turn), (Place::from_time(at(5_000)), at(5_000)));
    assert!(state.lengthened(&limit, &Update::new(), millis(1), at(1), at(0)).is_none(), "no line");
}

#[test]
fn a_message_of_a_new_line_does_not_move_by_the_length_of_an_earlier_one() {
    let limit = limit(10, 1);
    let mut state = LimitState::default();
    for _ in 0..1_000 {
        admit(&mut state, &limit, Ask::Newcomer, 0);
    }
    state = lengthened(state, &limit, millis(60_000), at(60_000), at(0));
    // Much later, messages join behind a pause that began when nobody waited.
    let now = 86_400_000;
    for _ in 0..100 {
        admit(&mut state, &limit, Ask::Paused(at(now + 1_000)), now);
    }
    let place = Place::from_time(at(now + 1_000));
    let (until, known) = (at(now + 3_000), KnownLimit::own(&limit));
    assert_eq!(state.held(&known, place, until, at(now + 1_000)).1, until);
}
